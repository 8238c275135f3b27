//! What the operating system tells: names of its users, room on its disks.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::roles::FALLBACK_SUPERUSER;

/// The longest entry of the user database that is read; a directory service may have longer ones than `/etc/passwd`.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The user that this process runs as.
pub fn user_id() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The name of the user that this process runs as, or another that will do where there is none.
pub fn user_name() -> String {
    name_of(user_id()).unwrap_or_else(|| FALLBACK_SUPERUSER.to_owned())
}

/// `None`: no user has this number.
pub fn name_of(user_id: u32) -> Option<String> {
    let mut buffer = vec![0; 1024];
    loop {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: entry, buffer and found are valid for writes of their sizes, which are given.
        let code = unsafe { libc::getpwuid_r(user_id, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
        if code == libc::ERANGE && buffer.len() < ENTRY_BYTES_MAX {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        if code != 0 || found.is_null() {
            return None;
        }
        // SAFETY: found is the entry, which getpwuid_r has filled; its name is a string within the buffer, which still lives.
        let name = unsafe { CStr::from_ptr((*found).pw_name) };
        return name.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned);
    }
}

/// Bytes that this process may still write to the disk of a folder; `None` if the system does not tell.
pub fn bytes_free(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in a zero byte, and found is valid for the write of one entry.
    let code = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: statvfs has filled it, since it says that it has not failed.
    let found = unsafe { found.assume_init() };
    u64::try_from(u128::from(found.f_bavail) * u128::from(found.f_frsize)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_is_root() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(user_id()).unwrap_or_else(|| FALLBACK_SUPERUSER.to_owned()), user_name());
    }

    #[test]
    fn a_folder_is_on_a_disk_and_what_is_not_there_is_on_none() {
        assert!(bytes_free(Path::new("/")).is_some());
        assert_eq!(bytes_free(Path::new("/no/such/folder")), None);
    }
}
