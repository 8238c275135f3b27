//! Large pages for what is read in one piece again and again.
//!
//! Weights are read from memory for each token. In pages of 4 kB a processor looks up a place every 4 kB, in a virtual machine twice over, and what fetches
//! ahead stops at the end of each page.

/// Memory of which a page of 2 MB is no large part.
const BYTES_MIN: usize = 4 << 20;

/// Asks the system for large pages where `values` lie, before they are written for the first time. Nothing depends on whether it has some.
#[cfg(target_os = "linux")]
pub fn advise<T>(values: &mut [T]) {
    if size_of_val(values) < BYTES_MIN {
        return;
    }
    // Where pages are larger than most are, the system may refuse, and nothing is lost.
    let page = 4096;
    let (start, end) = (values.as_ptr().addr().next_multiple_of(page), values.as_ptr_range().end.addr() / page * page);
    // SAFETY: these whole pages are part of the values; how they are mapped changes nothing in them.
    unsafe { libc::madvise(values.as_mut_ptr().with_addr(start).cast(), end - start, libc::MADV_HUGEPAGE) };
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn advise<T>(_values: &mut [T]) {}
