# Completion of haul for fish: haul itself says how a word goes on.
function __haul_complete
    set -l raw (commandline -ct)
    # What it means, also while its quote is open.
    set -l word
    for end in '' "'" '"'
        set word (string unescape -- "$raw$end"); and break
    end
    set -l offered (command haul complete fish -- (commandline -opc) "$word" 2>/dev/null </dev/null)
    switch "$offered[1]"
        case files
            # A command that fish knows nothing of takes files.
            complete -C"__haul_takes_files $raw"
        case directories
            __fish_complete_directories "$raw" ''
    end
    set -e offered[1]
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    end
end
complete -c haul -f -a '(__haul_complete)'
