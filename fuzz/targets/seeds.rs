//! Writes the seeds of all targets: `seeds FOLDER` makes `FOLDER/TARGET/seed-NN`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: seeds FOLDER"));
    };
    for target in martlet_fuzz::TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}
