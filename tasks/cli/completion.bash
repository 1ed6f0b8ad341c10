# Tab completion in bash for xformer, and for python train.py in a checkout.
_xformer_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" current="${COMP_WORDS[COMP_CWORD]}" typed IFS=$'\n'
    local -a program=("${COMP_WORDS[0]}")
    case "$line" in
        python*train.py\ *) program=("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" -sc) ;;
        python*-m\ xformer_kit\ *) program=("${COMP_WORDS[0]}" -m xformer_kit train -sc) ;;
        python*) return ;;
        *) program=("${COMP_WORDS[0]}" train -sc) ;;
    esac
    COMPREPLY=($(XFORMER_LINE="$line" "${program[@]}" query=bash 2>/dev/null))
    # Bash completes only what follows the last = or : of a word.
    typed="${line##* }"
    case "$current" in '=' | ':') current="" ;; esac
    COMPREPLY=("${COMPREPLY[@]#"${typed%"$current"}"}")
}
complete -o nospace -o default -o bashdefault -F _xformer_complete xformer
