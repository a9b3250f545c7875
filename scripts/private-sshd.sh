# Sourced by demo.sh and bench.sh: an sshd of our own on loopback, with its own port, keys, home and cache. No root needed;
# nothing of the user's own ssh is read or written.
#
#   start_sshd DIR     makes DIR and sets SSH_CONFIG; the host in it is called "there"
#   stop_sshd

start_sshd() {
    local dir=$1 sshd port
    SSHD_DIR=$dir
    mkdir -p "$dir/home" "$dir/cache" "$dir/config" "$dir/state"
    sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) ||
        { echo "sshd is missing: install the package openssh-server" >&2; return 1; }
    # As root, sshd insists on this directory and does not make it.
    if ((EUID == 0)); then mkdir -p /run/sshd; fi
    ssh-keygen -q -t ed25519 -N '' -C haul-host -f "$dir/host_key"
    ssh-keygen -q -t ed25519 -N '' -C haul-user -f "$dir/user_key"
    cp "$dir/user_key.pub" "$dir/authorized_keys"

    # A free port can be taken by somebody else between looking and binding: then the next one.
    for ((port = 22022 + RANDOM % 10000; ; port++)); do
        cat >"$dir/sshd_config" <<-END
			Port $port
			ListenAddress 127.0.0.1
			HostKey $dir/host_key
			PidFile none
			AuthorizedKeysFile $dir/authorized_keys
			StrictModes no
			UsePAM no
			PasswordAuthentication no
			KbdInteractiveAuthentication no
			PermitRootLogin prohibit-password
			MaxStartups 100:30:200
			PrintMotd no
			UseDNS no
			Subsystem sftp internal-sftp
			SetEnv HOME=$dir/home XDG_CACHE_HOME=$dir/cache XDG_CONFIG_HOME=$dir/config XDG_STATE_HOME=$dir/state
		END
        "$sshd" -D -e -f "$dir/sshd_config" </dev/null >/dev/null 2>"$dir/sshd.log" &
        SSHD_PID=$!
        for ((tries = 0; tries < 100; tries++)); do
            # Its log is not there before it runs.
            if grep -qs 'Server listening' "$dir/sshd.log"; then break 2; fi
            kill -0 "$SSHD_PID" 2>/dev/null || break
            sleep 0.05
        done
        kill "$SSHD_PID" 2>/dev/null || true
        grep -q 'Address already in use' "$dir/sshd.log" || { cat "$dir/sshd.log" >&2; return 1; }
    done

    SSH_CONFIG=$dir/ssh_config
    printf '%s %s\n' there "$(cut -d' ' -f1,2 "$dir/host_key.pub")" >"$dir/known_hosts"
    cat >"$SSH_CONFIG" <<-END
		Host there
		  HostName 127.0.0.1
		  HostKeyAlias there
		  Port $port
		  User $(id -un)
		  IdentityFile $dir/user_key
		  IdentitiesOnly yes
		  UserKnownHostsFile $dir/known_hosts
		  GlobalKnownHostsFile /dev/null
		  StrictHostKeyChecking yes
		  BatchMode yes
		  LogLevel ERROR
	END
}

stop_sshd() {
    local process
    if [[ -n ${SSHD_PID:-} ]]; then
        kill "$SSHD_PID" 2>/dev/null || true
        wait "$SSHD_PID" 2>/dev/null || true
        SSHD_PID=
    fi
    # What it started runs from its own cache, and nothing else does.
    for process in /proc/[0-9]*; do
        if [[ -n ${SSHD_DIR:-} && $(readlink "$process/exe" 2>/dev/null) == "$SSHD_DIR/cache/"* ]]; then
            kill -9 "${process#/proc/}" 2>/dev/null || true
        fi
    done
}
