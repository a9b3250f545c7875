//! Endpoints as people would type them.

use crate::job::{Endpoint, Far, FtpServer, Here, Place};

impl Endpoint {
    /// The endpoint as people would type it, without a login's password and a URL's query.
    pub fn written(&self) -> Vec<u8> {
        let mut text = match &self.place {
            Place::Here(Here::Disk) => Vec::new(),
            Place::Here(Here::Web(server)) => {
                return [server.to_string().as_bytes(), &without_query(&self.path)].concat();
            }
            Place::Here(made_up @ (Here::Zero { .. } | Here::Stripes { .. } | Here::Null)) => {
                made_up.to_string().into_bytes()
            }
            // GridFTP's path begins at the top.
            Place::Here(server @ (Here::SshFtp { .. } | Here::Ftp(FtpServer { is_grid: true, .. }))) => {
                let home = if self.path.starts_with(b"/") { "" } else { "/~/" };
                format!("{server}{home}").into_bytes()
            }
            Place::Here(server @ (Here::Sftp { .. } | Here::Ftp(_) | Here::S3 { .. })) => {
                format!("{server}/").into_bytes()
            }
            Place::Far(Far::Ssh { user, host, port }) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                match port {
                    Some(port) => format!("ssh://{user}{host}:{port}/").into_bytes(),
                    None => format!("{user}{host}:").into_bytes(),
                }
            }
            Place::Far(daemon @ Far::Haul { .. }) => format!("{daemon}/").into_bytes(),
        };
        text.extend_from_slice(&self.path);
        text
    }
}

/// Hides the query of a path in a URL: it may be a signature.
pub fn without_query(path: &[u8]) -> Vec<u8> {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
    end.map_or(path.to_vec(), |end| [&path[..end], b"?..."].concat())
}
