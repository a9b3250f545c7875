//! Opens the ends where no haul runs, for the commands that look at trees and change them by hand.

use std::sync::Arc;

use haul_channel::reporter::Watch;
use haul_job::{Error, Fault, Here};
use haul_kept::surroundings::Surroundings;
use haul_places::{Request, Ways};
use haul_store::PlaceTree;
use haul_wire::place::Verb;

use crate::{ftp_ends, s3_ends, sftp_ends, web};

/// The user's ways to all places.
pub fn ways(surroundings: &Surroundings) -> Ways {
    Ways::new(surroundings, open)
}

fn open(
    end: &Here,
    request: &Request,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Arc<dyn PlaceTree>, Error> {
    let refused = |what: String, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    match end {
        Here::Sftp { .. } => sftp_ends::place(end, &request.job(), surroundings, watch),
        Here::Web(server) => match request.question.verb {
            Verb::Make { .. } | Verb::Move { .. } | Verb::Remove { .. } | Verb::Write | Verb::Clean { .. } => refused(
                format!("{server} is a web server, which is only read"),
                "haul serve takes files, at haul://host/path",
            ),
            Verb::Space => {
                refused(format!("{server} is a web server, and tells no space"), "haul du sums up the sizes of files")
            }
            _ => web::place(server, &request.job(), surroundings),
        },
        Here::Ftp(_) | Here::SshFtp { .. } => match request.question.verb {
            Verb::Write => refused(format!("{end}: this command does not speak FTP"), "haul cp copies files there"),
            Verb::Space => refused(format!("{end} tells no space"), "haul du sums up the sizes of files"),
            _ => ftp_ends::place(end, request, surroundings, watch),
        },
        Here::S3 { bucket } => match request.question.verb {
            Verb::Space => {
                refused(format!("{end} is a store, and tells no space"), "haul du sums up the sizes of objects")
            }
            _ => s3_ends::place(bucket, request, surroundings, watch),
        },
        Here::Disk | Here::Zero { .. } | Here::Stripes { .. } | Here::Null => {
            refused(format!("{end} has no names to look at"), "name a path, host:path, haul://host/path or a URL")
        }
    }
}
