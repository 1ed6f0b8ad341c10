import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # objective_models.py, which the tests here share
