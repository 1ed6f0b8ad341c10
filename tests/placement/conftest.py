import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # test_placement.py, of which others import
