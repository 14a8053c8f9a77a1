//! A small file that is replaced as a whole: after a kill or a crash it is the old or the new one.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::failure::{Failure, Result};

/// Writes the file; when it returns, the bytes and the name are on disk.
///
/// # Errors
/// If the system refuses; the old file is still there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.display();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let put = || {
        let mut file = File::create(beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    put().map_err(Failure::io(format!("can't write {name}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_new_file_takes_the_place_of_the_old() {
        let path = std::env::temp_dir().join(format!("halley-cli-whole-{}", std::process::id()));
        for text in ["one", "two"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(write(&path.join("below"), b""), Err(Failure::Io(..))));
    }
}
