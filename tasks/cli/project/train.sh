#!/bin/sh
# Trains with conf/ and components.py of this project, from any directory: ./train.sh [OVERRIDE ...]
# Runs are written to outputs/ of the current directory.
project=$(dirname "$0")
[ $# -gt 0 ] || set -- experiment=first
exec xformer train --config-dir "$project/conf" "components=['$project/components.py']" "$@"
