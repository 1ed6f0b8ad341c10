# Tab completion in zsh for xformer, and for python train.py in a checkout.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
_xformer_complete() {
    local -a program found finished
    case "$LBUFFER" in
        python*train.py\ *) program=("$words[1]" "$words[2]" -sc) ;;
        python*-m\ xformer_kit\ *) program=("$words[1]" -m xformer_kit train -sc) ;;
        python*) _default; return ;;
        *) program=("$words[1]" train -sc) ;;
    esac
    found=("${(@f)$(XFORMER_LINE="$LBUFFER" "${program[@]}" query=zsh 2>/dev/null)}")
    finished=("${(@M)found:#* }")
    compadd -Q -S ' ' -- "${(@)finished% }"
    compadd -Q -S '' -- "${(@)found:#* }"
    (( compstate[nmatches] )) || { compset -P '*='; _default; }
}
compdef _xformer_complete xformer
