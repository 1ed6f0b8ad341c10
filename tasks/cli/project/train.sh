#!/bin/sh
# Trains with conf/ and components.py of this project, from any directory: ./train.sh [OVERRIDE ...]
# The experiment is first, unless another one, or a run to resume, is given.
# Runs are written to outputs/ of the current directory.
project=$(dirname "$0")
case " $*" in
  *" experiment="* | *" resume="*) ;;
  *) set -- experiment=first "$@" ;;
esac
exec xformer train --config-dir "$project/conf" "components=['$project/components.py']" "$@"
