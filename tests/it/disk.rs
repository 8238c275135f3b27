//! What a disk holds after the power is gone, worked out from a trace of a process's system calls (`strace -f -y -s 0`). No I/O here.
//!
//! The model is the strictest that POSIX allows. Of a file's bytes those last that were written before a sync of the file began which came to its end;
//! a name (made, moved, linked, removed) lasts once its folder has been synced after it. Everything else may be lost, so [`Unsynced`] says what became
//! of it. Files are taken to grow only, as those of tables do: how many bytes last, not which.
//!
//! Left out: paths with signs that strace escapes, files without a name, and what is written through a mapping of memory.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// What became of names that no sync had made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// New ones are gone, removed ones are back.
    Lost,
    /// They are as the process left them; bytes that were not synced are lost all the same.
    Kept,
    /// One or the other for the names of each file and folder, drawn by this seed.
    Either(u64),
}

impl Unsynced {
    /// Whether the newest names of a node last. All of one node share their fate, as the two of a rename do, which is done whole or not at all.
    fn keeps(self, node: usize) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Either(seed) => {
                let mut hasher = DefaultHasher::new();
                (seed, node).hash(&mut hasher);
                hasher.finish() & 1 == 0
            }
        }
    }
}

/// What a path is after the power is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survivor {
    Folder,
    /// `node` is the same for all names of a file, in all cuts of one trace.
    File {
        node: usize,
        bytes: u64,
    },
}

/// Names in a folder, with the places of their nodes.
type Names = BTreeMap<String, usize>;

/// A file or a folder.
#[derive(Debug, Default)]
struct Node {
    is_folder: bool,
    /// As the process sees them.
    names: Names,
    durable_names: Names,
    written: u64,
    durable: u64,
}

/// What a sync makes durable: what was there when it began.
#[derive(Debug)]
struct Covered {
    node: usize,
    names: Names,
    written: u64,
}

/// A call that has begun in one thread while the trace goes on with others.
#[derive(Debug)]
struct Unfinished {
    text: String,
    sync: Option<Covered>,
}

/// The folder that everything else is in; its own name lasts.
const ROOT: usize = 0;

/// Files and folders below one folder; other paths are passed over.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    /// By thread.
    unfinished: HashMap<String, Unfinished>,
}

impl Disk {
    /// `root` without links in its path; `folders` are in it, durably, before the trace begins.
    pub(crate) fn new(root: &Path, folders: &[&str]) -> Self {
        let mut disk = Self { root: root.to_owned(), nodes: vec![Node { is_folder: true, ..Node::default() }], unfinished: HashMap::new() };
        for folder in folders {
            disk.entry(ROOT, folder, true);
        }
        disk.nodes[ROOT].durable_names = disk.nodes[ROOT].names.clone();
        disk
    }

    /// Takes the next line of the trace.
    pub(crate) fn apply(&mut self, line: &str) {
        let Some((thread, text)) = line.split_once(' ') else { return };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            let unfinished = Unfinished { text: start.to_owned(), sync: self.sync_of(start) };
            self.unfinished.insert(thread.to_owned(), unfinished);
        } else if let Some((_, end)) = text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            if let Some(Unfinished { text, sync }) = self.unfinished.remove(thread) {
                self.finish(&format!("{text}{end}"), sync);
            }
        } else {
            self.finish(text, self.sync_of(text));
        }
    }

    /// Every path below the root that is there when the power is back, folders before what is in them.
    pub(crate) fn survivors(&self, unsynced: Unsynced) -> BTreeMap<PathBuf, Survivor> {
        let mut survivors = BTreeMap::new();
        self.collect(ROOT, Path::new(""), unsynced, &mut survivors);
        survivors
    }

    fn collect(&self, folder: usize, at: &Path, unsynced: Unsynced, survivors: &mut BTreeMap<PathBuf, Survivor>) {
        let Node { names, durable_names, .. } = &self.nodes[folder];
        let all: BTreeSet<&String> = names.keys().chain(durable_names.keys()).collect();
        for name in all {
            let path = at.join(name);
            let (newest, durable) = (names.get(name), durable_names.get(name));
            let is_kept = newest.or(durable).is_some_and(|node| unsynced.keeps(*node));
            let lasting = if is_kept { newest } else { durable };
            let Some(&node) = lasting else { continue };
            if self.nodes[node].is_folder {
                survivors.insert(path.clone(), Survivor::Folder);
                self.collect(node, &path, unsynced, survivors);
            } else {
                survivors.insert(path, Survivor::File { node, bytes: self.nodes[node].durable });
            }
        }
    }

    /// `None`: the call syncs nothing below the root.
    fn sync_of(&self, text: &str) -> Option<Covered> {
        if !text.starts_with("fsync(") && !text.starts_with("fdatasync(") {
            return None;
        }
        let node = self.described(text)?;
        Some(Covered { node, names: self.nodes[node].names.clone(), written: self.nodes[node].written })
    }

    /// A call that has come to its end; one that failed has done nothing.
    fn finish(&mut self, text: &str, sync: Option<Covered>) {
        let Some(Call { name, arguments, result }) = Call::parse(text) else { return };
        match name {
            "open" | "openat" => self.open(arguments, result),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "sendfile" => self.write(self.described(arguments), result),
            // The file that is written is named after the one that is read.
            "copy_file_range" => self.write(arguments.rfind('<').and_then(|target| self.described(&arguments[target..])), result),
            "truncate" => self.cut(paths(arguments).first().and_then(|path| self.find(path)), arguments),
            "ftruncate" => self.cut(self.described(arguments), arguments),
            "fsync" | "fdatasync" => self.synced(sync),
            "mkdir" | "mkdirat" => drop(paths(arguments).first().and_then(|path| self.make(path, true))),
            "rename" | "renameat" | "renameat2" => self.link(arguments, true),
            "link" | "linkat" => self.link(arguments, false),
            "unlink" | "unlinkat" | "rmdir" => {
                if let Some(path) = paths(arguments).first() {
                    self.set(path, None);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, arguments: &str, result: &str) {
        let Some(path) = descriptor(result).map(PathBuf::from) else { return };
        let node = if arguments.contains("O_CREAT") { self.make(&path, false) } else { self.find(&path) };
        if let Some(node) = node.filter(|_| arguments.contains("O_TRUNC")) {
            (self.nodes[node].written, self.nodes[node].durable) = (0, 0);
        }
    }

    fn write(&mut self, node: Option<usize>, result: &str) {
        if let (Some(node), Ok(bytes)) = (node, result.parse::<u64>()) {
            self.nodes[node].written += bytes;
        }
    }

    /// To the length that is the last argument.
    fn cut(&mut self, node: Option<usize>, arguments: &str) {
        let length = arguments.rsplit_once(", ").and_then(|(_, length)| length.parse::<u64>().ok());
        if let (Some(node), Some(length)) = (node, length) {
            let node = &mut self.nodes[node];
            (node.written, node.durable) = (length, node.durable.min(length));
        }
    }

    fn synced(&mut self, sync: Option<Covered>) {
        if let Some(Covered { node, names, written }) = sync {
            let node = &mut self.nodes[node];
            (node.durable_names, node.durable) = (names, node.durable.max(written));
        }
    }

    /// Gives a file or folder its second name, instead of the first one if it `moves`. What comes from elsewhere was never synced.
    fn link(&mut self, arguments: &str, moves: bool) {
        let paths = paths(arguments);
        let [from, to] = paths.as_slice() else { return };
        if self.parts(from).is_none() && self.parts(to).is_none() {
            return;
        }
        let node = self.find(from).unwrap_or_else(|| self.add(false));
        if moves {
            self.set(from, None);
        }
        self.set(to, Some(node));
    }

    /// The node of the first descriptor in a text, which strace shows as `3</path>`.
    fn described(&self, text: &str) -> Option<usize> {
        self.find(Path::new(descriptor(text)?))
    }

    fn find(&self, path: &Path) -> Option<usize> {
        self.parts(path)?.iter().try_fold(ROOT, |folder, name| self.nodes[folder].names.get(name).copied())
    }

    /// The file or folder of a path, a new one if there is none. `None`: it is not below the root.
    fn make(&mut self, path: &Path, is_folder: bool) -> Option<usize> {
        let parts = self.parts(path)?;
        let (name, folders) = parts.split_last()?;
        let folder = self.folder(folders);
        Some(self.entry(folder, name, is_folder))
    }

    /// Makes a name stand for a node, or for nothing.
    fn set(&mut self, path: &Path, node: Option<usize>) {
        let Some(parts) = self.parts(path) else { return };
        let Some((name, folders)) = parts.split_last() else { return };
        let folder = self.folder(folders);
        let names = &mut self.nodes[folder].names;
        match node {
            Some(node) => drop(names.insert(name.clone(), node)),
            None => drop(names.remove(name)),
        }
    }

    /// One that is missing was made by a call whose end another thread did not wait for.
    fn folder(&mut self, parts: &[String]) -> usize {
        parts.iter().fold(ROOT, |folder, name| self.entry(folder, name, true))
    }

    fn entry(&mut self, folder: usize, name: &str, is_folder: bool) -> usize {
        if let Some(node) = self.nodes[folder].names.get(name) {
            return *node;
        }
        let node = self.add(is_folder);
        self.nodes[folder].names.insert(name.to_owned(), node);
        node
    }

    fn add(&mut self, is_folder: bool) -> usize {
        self.nodes.push(Node { is_folder, ..Node::default() });
        self.nodes.len() - 1
    }

    /// Names from the root down; `None`: the path is elsewhere.
    fn parts(&self, path: &Path) -> Option<Vec<String>> {
        let inside = path.strip_prefix(&self.root).ok()?;
        Some(inside.iter().map(|part| part.to_string_lossy().into_owned()).collect())
    }
}

/// A call that did not fail, as the trace shows it: `name(arguments) = result`.
struct Call<'a> {
    name: &'a str,
    arguments: &'a str,
    result: &'a str,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (call, result) = text.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        (!result.starts_with(['-', '?'])).then_some(Self { name, arguments, result })
    }
}

/// The path of the first descriptor in a text; `None` also for a file that has no name any more, since another may have it.
fn descriptor(text: &str) -> Option<&str> {
    let (path, rest) = text.split_once('<')?.1.split_once('>')?;
    (!rest.starts_with("(deleted)")).then_some(path)
}

/// The paths among the arguments. A relative one belongs to the folder whose descriptor stands before it.
fn paths(arguments: &str) -> Vec<PathBuf> {
    let (mut found, mut folder, mut rest) = (Vec::new(), PathBuf::from("/"), arguments);
    while let Some(at) = rest.find(['<', '"']) {
        let is_folder = rest[at..].starts_with('<');
        let Some((text, after)) = rest[at + 1..].split_once(if is_folder { '>' } else { '"' }) else { break };
        if is_folder {
            folder = PathBuf::from(text);
        } else {
            found.push(folder.join(text));
        }
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// A file `/r/a` of three bytes that lasts.
    const A: &str = r#"1 openat(AT_FDCWD</w>, "/r/a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</r/a>
1 write(3</r/a>, ""..., 3) = 3
1 fsync(3</r/a>) = 0
1 openat(AT_FDCWD</w>, "/r", O_RDONLY|O_CLOEXEC) = 4</r>
1 fsync(4</r>) = 0
"#;

    /// Paths and lengths after a trace, folders with a stroke at their end.
    fn check(trace: &str, unsynced: Unsynced, expected: &Expect) {
        let mut disk = Disk::new(Path::new("/r"), &[]);
        trace.lines().for_each(|line| disk.apply(line));
        let show = |(path, survivor): (PathBuf, Survivor)| match survivor {
            Survivor::Folder => format!("{}/", path.display()),
            Survivor::File { bytes, .. } => format!("{} {bytes}", path.display()),
        };
        let shown: Vec<String> = disk.survivors(unsynced).into_iter().map(show).collect();
        expected.assert_eq(&shown.join(", "));
    }

    #[test]
    fn a_file_that_was_never_synced_is_empty() {
        let trace = r#"1 openat(AT_FDCWD</w>, "/r/a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</r/a>
1 write(3</r/a>, ""..., 3) = 3
1 fsync(4</r>) = 0"#;
        check(trace, Unsynced::Lost, &expect!["a 0"]);
    }

    #[test]
    fn a_name_whose_folder_was_not_synced_is_lost() {
        let trace = r#"1 mkdir("/r/d", 0777) = 0
1 fsync(3</r>) = 0
1 openat(AT_FDCWD</w>, "/r/d/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3</r/d/a>
1 write(3</r/d/a>, ""..., 3) = 3
1 fsync(3</r/d/a>) = 0"#;
        check(trace, Unsynced::Lost, &expect!["d/"]);
        check(trace, Unsynced::Kept, &expect!["d/, d/a 3"]);
    }

    #[test]
    fn what_is_in_a_folder_that_was_not_synced_goes_with_it() {
        let trace = r#"1 mkdir("/r/d", 0777) = 0
1 openat(AT_FDCWD</w>, "/r/d/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3</r/d/a>
1 fsync(3</r/d/a>) = 0
1 fsync(4</r/d>) = 0"#;
        check(trace, Unsynced::Lost, &expect![""]);
        check(trace, Unsynced::Kept, &expect!["d/, d/a 0"]);
    }

    #[test]
    fn bytes_after_the_last_sync_are_lost() {
        check(&format!("{A}1 write(3</r/a>, \"\"..., 9) = 9"), Unsynced::Kept, &expect!["a 3"]);
        check(&format!("{A}1 ftruncate(3</r/a>, 1) = 0"), Unsynced::Kept, &expect!["a 1"]);
    }

    #[test]
    fn a_rename_lasts_once_the_folder_is_synced() {
        let renamed = format!(
            r#"{A}1 openat(AT_FDCWD</w>, "/r/.a", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 5</r/.a>
1 write(5</r/.a>, ""..., 7) = 7
1 fsync(5</r/.a>) = 0
1 renameat(AT_FDCWD</w>, "/r/.a", AT_FDCWD</w>, "/r/a") = 0
"#
        );
        check(&renamed, Unsynced::Lost, &expect!["a 3"]);
        check(&renamed, Unsynced::Kept, &expect!["a 7"]);
        check(&format!("{renamed}1 fsync(4</r>) = 0"), Unsynced::Lost, &expect!["a 7"]);
    }

    #[test]
    fn a_removed_name_comes_back() {
        let removed = format!("{A}1 unlinkat(4</r>, \"a\", 0) = 0\n");
        check(&removed, Unsynced::Lost, &expect!["a 3"]);
        check(&removed, Unsynced::Kept, &expect![""]);
        check(&format!("{removed}1 fsync(4</r>) = 0"), Unsynced::Lost, &expect![""]);
    }

    #[test]
    fn a_link_is_a_second_name() {
        check(&format!("{A}1 linkat(AT_FDCWD</w>, \"/r/a\", AT_FDCWD</w>, \"/r/b\", 0) = 0"), Unsynced::Kept, &expect!["a 3, b 3"]);
    }

    #[test]
    fn a_sync_covers_what_was_there_when_it_began_and_counts_when_it_ends() {
        let begun = format!(
            r#"{A}1 write(3</r/a>, ""..., 2) = 2
1 fsync(3</r/a> <unfinished ...>
2 write(3</r/a>, ""..., 4 <unfinished ...>
2 <... write resumed>)                 = 4
"#
        );
        check(&begun, Unsynced::Kept, &expect!["a 3"]);
        check(&format!("{begun}1 <... fsync resumed>)                 = 0"), Unsynced::Kept, &expect!["a 5"]);
    }

    #[test]
    fn calls_that_failed_and_other_folders_are_passed_over() {
        let trace = format!(
            r#"{A}1 mkdir("/r/d", 0777) = -1 EEXIST (File exists)
1 fsync(9) = -1 EBADF (Bad file descriptor)
1 unlink("/elsewhere/a") = 0
1 openat(AT_FDCWD</w>, "/r", O_RDWR|O_CLOEXEC|O_TMPFILE, 0600) = 6</r/#77>(deleted)
1 write(6</r/#77>(deleted), ""..., 3) = 3
1 exit_group(0) = ?"#
        );
        check(&trace, Unsynced::Kept, &expect!["a 3"]);
    }

    #[test]
    fn files_share_no_fate_but_the_two_names_of_a_rename_do() {
        let mut disk = Disk::new(Path::new("/r"), &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        (0..10).for_each(|folder| disk.apply(&format!("1 rename(\"/r/{folder}\", \"/r/{folder}.new\") = 0")));
        let survivors = disk.survivors(Unsynced::Either(1));
        let renamed = survivors.keys().filter(|path| path.extension().is_some()).count();
        assert_eq!(survivors.len(), 10, "each has one name: {survivors:?}");
        assert!((1..10).contains(&renamed), "{renamed} of 10 have their new name");
        assert_eq!(disk.survivors(Unsynced::Either(1)), survivors, "a seed gives the same names");
    }
}
