//! Which attributes are copied, and the rights that setting them needs.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use haul_store::{LocalTree, Metadata, TargetOptions};
use haul_sys::condition::unmet;
use haul_sys::{process, xattr};

const NAME: &[u8] = b"security.capability";
/// `cap_net_raw=ep`: revision 2 with the effective flag, and bit 13 of the permitted set (capabilities(7),
/// `linux/capability.h`).
const RAW_SOCKETS: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_capability_of_a_program_travels_with_its_owner_only() {
    if !process::is_root() {
        return unmet("only root gives programs capabilities");
    }
    let dir = tempfile::tempdir().unwrap();
    let options = TargetOptions { xattrs: true, ..Default::default() };
    let tree = LocalTree::open(dir.path().as_os_str().as_bytes(), &options).unwrap().0;
    let capability = |name: &str| xattr::get(File::open(dir.path().join(name)).unwrap().as_fd(), NAME).unwrap();
    fs::write(dir.path().join("probe"), "").unwrap();
    if xattr::set(File::open(dir.path().join("probe")).unwrap().as_fd(), NAME, &RAW_SOCKETS).is_err() {
        return unmet("the file system of the temporary directory has no capabilities of files");
    }
    let take = |owner: Option<u32>, attributes: Vec<(Vec<u8>, Vec<u8>)>| {
        let meta = Metadata { owner, group: owner, xattrs: Some(attributes), ..Default::default() };
        tree.set_metadata(b"stands", &meta).unwrap();
        tree.new_part(b"new", false).unwrap().commit(&meta, false).unwrap();
        [capability("stands"), capability("new")]
    };
    let sent = || vec![(NAME.to_vec(), RAW_SOCKETS.to_vec())];
    fs::write(dir.path().join("stands"), "").unwrap();
    assert_eq!(take(None, sent()), [None, None]);
    let given = Some(RAW_SOCKETS.to_vec());
    assert_eq!(take(Some(12_345), sent()), [given.clone(), given.clone()]);
    assert_eq!(take(None, Vec::new()), [given, None]);
    assert_eq!(take(Some(12_345), Vec::new()), [None, None]);
}
