#!/bin/sh
# Trains with conf/ and components.py of this project, from any directory: ./train.sh [OVERRIDE ...]
cd "$(dirname "$0")" || exit
[ $# -gt 0 ] || set -- experiment=first
exec xformer train --config-dir conf 'components=[components.py]' "$@"
