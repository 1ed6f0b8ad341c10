#!/bin/sh
# Trains with conf/ and components.py of this project, from any directory: ./train.sh [OVERRIDE ...]
# The experiment is first, unless another one, or a run to resume, is given.
# Runs are written to outputs/ of the current directory.
script=$0
[ ! -L "$script" ] || script=$(readlink -f "$script")
project=$(dirname "$script")
components=$(printf '%s' "$project/components.py" | sed "s/'/\\\\'/g")
case " $*" in
  *" experiment="* | *" resume="*) ;;
  *) set -- experiment=first "$@" ;;
esac
exec xformer train --config-dir "$project/conf" "components=['$components']" "$@"
