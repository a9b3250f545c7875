# Completion of haul for bash 4.4 and newer: haul itself says how a word goes on.
_haul() {
    local -a offered
    mapfile -t offered < <(command haul complete bash -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null </dev/null)
    case ${offered[0]-} in
        files) ;;
        directories) compopt +o default +o bashdefault -o dirnames ;;
        *) compopt +o default +o bashdefault ;;
    esac
    COMPREPLY=("${offered[@]:1}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:] ]]; then compopt -o nospace; fi
}
complete -F _haul -o bashdefault -o default haul
