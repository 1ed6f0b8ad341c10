"""Write a W&B sweep from a study, or from overrides with several values: the file for `wandb
sweep`, to stdout or to --out. Every combination that W&B can propose is composed first (a sample of
them if there are many), so that no agent receives an invalid one.
"""

import sys
from typing import Any

from tasks.cli.command import import_files
from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import config_error
from xformer_kit.text.command_lines import for_shell

SUMMARY = "a W&B sweep from a study or from overrides with several values"
EXAMPLES = """examples:
  xformer sweep export study=norm_placement --out sweep.yaml
  xformer sweep export attn.heads=2,4,8 position=rotary,alibi
  xformer sweep export attn.heads=2,4,8 'optim.lr=tag(log,interval(1e-4,1e-2))' \\
      --method bayes --out sweep.yaml
then:
  wandb sweep sweep.yaml      and on every machine the `wandb agent` command that it prints"""
OPTIONS = {
    "action export": "export: write the file",
    "inputs* OVERRIDE": "study=NAME, or overrides, some with several values",
    "--method grid|random|bayes": "how W&B chooses (grid; bayes with intervals)",
    "--metric NAME": f"the metric to optimize ({VAL_LOSS}, or the study's)",
    "--out FILE": "output file (stdout)",
}


def run(args: Any) -> int:
    import yaml

    from tasks.cli.wandb_sweep import export_sweep
    from tasks.generation.translation import check_writable

    if args.action != "export":
        raise config_error("sweep", f"there is no '{args.action}'", fix="Known: export.")
    import_files(args.components)
    sweep = export_sweep(args.inputs, args.method, args.metric, args.components)
    text = yaml.safe_dump(sweep.config, sort_keys=False, allow_unicode=True, width=120)
    if args.out:
        check_writable(args.out, "--out").write_text(text, encoding="utf-8")
        print(f"{args.out}: wandb sweep {for_shell(str(args.out))}")
    else:
        print(text, end="")
    for note in sweep.notes:
        print(note, file=sys.stderr)
    return 0
