//! Endpoints as people would type them.

use haul_job::{Endpoint, Far, FtpServer, Here, Place};

use crate::far_side::web_url;

pub fn text(endpoint: &Endpoint) -> Vec<u8> {
    let mut text = match &endpoint.place {
        Place::Here(Here::Disk) => Vec::new(),
        Place::Here(Here::Web(server)) => {
            return [server.to_string().as_bytes(), &web_url::without_query(&endpoint.path)].concat();
        }
        Place::Here(made_up @ (Here::Zero { .. } | Here::Stripes { .. } | Here::Null)) => {
            made_up.to_string().into_bytes()
        }
        // GridFTP's path begins at the top.
        Place::Here(server @ (Here::SshFtp { .. } | Here::Ftp(FtpServer { is_grid: true, .. }))) => {
            let home = if endpoint.path.starts_with(b"/") { "" } else { "/~/" };
            format!("{server}{home}").into_bytes()
        }
        Place::Here(server @ (Here::Sftp { .. } | Here::Ftp(_) | Here::S3 { .. })) => format!("{server}/").into_bytes(),
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
    text.extend_from_slice(&endpoint.path);
    text
}
