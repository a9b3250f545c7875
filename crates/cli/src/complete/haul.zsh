#compdef haul
# Completion of haul for zsh: haul itself says how a word goes on.
_haul() {
    local -a offered open closed open_shown closed_shown
    local line word shown
    offered=("${(@f)$(command haul complete zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}")
    for line in "${(@)offered[2,-1]}"; do
        word=${line%%$'\t'*}
        shown=$word
        if [[ $line == *$'\t'* ]]; then shown="$word  -- ${line#*$'\t'}"; fi
        if [[ $word == *[/:] ]]; then
            open+=("$word") open_shown+=("$shown")
        else
            closed+=("$word") closed_shown+=("$shown")
        fi
    done
    local ret=1
    if (($#closed)); then compadd -l -d closed_shown -a closed && ret=0; fi
    if (($#open)); then compadd -S '' -l -d open_shown -a open && ret=0; fi
    case ${offered[1]-} in
        files) _files && ret=0 ;;
        directories) _files -/ && ret=0 ;;
    esac
    return ret
}
if [[ $funcstack[1] == _haul ]]; then _haul "$@"; else compdef _haul haul; fi
