//! What is said to the login shell of a far side: run our program, or take it.

use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{FAIL, NEED};

use crate::error::{Error, Fault};

/// Our own program, to be copied to a far side.
pub(super) struct Program {
    pub(super) bytes: Vec<u8>,
    pub(super) sha256: String,
}

impl Program {
    pub(super) fn ours() -> Result<Self, Error> {
        let bytes = std::fs::read("/proc/self/exe")
            .map_err(|error| Error::new(Fault::Install, "cannot read our own program").because(error))?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, sha256 })
    }
}

pub(super) fn runs_on(system: &str, machine: &str) -> bool {
    let machine = match machine {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    system == "Linux" && machine == std::env::consts::ARCH
}

/// The command for the login shell. Any shell hands a single-quoted word on as it is, so it holds no quote, no newline and
/// no exclamation mark (csh); `sh` runs it. SHA-256 because every system has a program for it; openssl's
/// takes half the time of the others (10 against 20 ms for our 8 MB).
///
/// It reads the hash and the size of our program as one line, so that we compute them while ssh connects, and then, when it
/// asked for it, the program.
pub(super) fn start_script(arguments: &str) -> String {
    let script = format!(
        "read -r w n; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/haul; f=$d/haul-$w; \
         s() {{ {{ openssl dgst -sha256 -r \"$1\" || sha256sum \"$1\" || shasum -a 256 \"$1\"; }} 2>/dev/null | cut -c1-64; }}; \
         if [ -x \"$f\" ] && [ \"$(s \"$f\")\" = \"$w\" ]; then exec \"$f\" agent {arguments}; fi; \
         p=$(command -v haul 2>/dev/null) && [ \"$(\"$p\" agent --protocol 2>/dev/null)\" = \"haul-protocol {PROTOCOL_VERSION}\" ] \
         && exec \"$p\" agent {arguments}; \
         echo \"{NEED} $(uname -s) $(uname -m)\"; \
         t=; mkdir -p -m 700 \"$d\" 2>/dev/null && t=$(mktemp \"$d/.new.XXXXXX\" 2>/dev/null); \
         if [ -z \"$t\" ]; then head -c $n >/dev/null; echo \"{FAIL} cannot write to $d\"; exit 1; fi; \
         trap \"rm -f $t\" EXIT; head -c $n >\"$t\"; \
         if [ \"$(s \"$t\")\" = \"$w\" ]; then :; else echo \"{FAIL} our program did not arrive whole in $d (no space, or no sha256sum)\"; exit 1; fi; \
         chmod 700 \"$t\"; if [ \"$(\"$t\" agent --protocol 2>/dev/null)\" = \"haul-protocol {PROTOCOL_VERSION}\" ]; then :; \
         else echo \"{FAIL} programs cannot be run from $d (mounted noexec)\"; exit 1; fi; \
         mv -f \"$t\" \"$f\" && exec \"$f\" agent {arguments}; echo \"{FAIL} cannot put our program into $d\"; exit 1"
    );
    format!("exec sh -c '{script}'")
}

/// One word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_script_survives_any_login_shell() {
        let script = start_script("--port-range 5000-5010");
        let inner = script.strip_prefix("exec sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inner.contains(['\'', '\n', '!']), "{inner}");
    }

    #[test]
    fn a_named_program_is_one_word_for_the_shell() {
        assert_eq!(quoted("/opt/my haul"), "'/opt/my haul'");
        assert_eq!(quoted("a'; rm -rf /; '"), "'a'\\''; rm -rf /; '\\'''");
    }
}
