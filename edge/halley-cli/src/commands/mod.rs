//! The commands, a file each: options by clap, requests by [`crate::client`], results by
//! [`crate::out`].

pub mod completion;
pub mod doctor;
pub mod elsewhere;
pub mod events;
pub mod export;
pub mod follows;
pub mod import;
pub mod listen;
pub mod lists;
pub mod publish;
pub mod reference;
pub mod sessions;
pub mod status;
pub mod token;
pub mod top;
pub mod trace;
pub mod users;

use crate::client::{Client, Door};
use crate::failure::Result;
use crate::out::Out;
use crate::settings::{Flags, Settings};

/// What a command works with.
#[derive(Debug)]
pub struct Context {
    /// Where the server is and who asks.
    pub settings: Settings,
    /// Stdout.
    pub out: Out,
}

impl Context {
    /// By the flags, the environment and the file.
    ///
    /// # Errors
    /// If one of them is wrong.
    pub fn new(flags: &Flags) -> Result<Self> {
        let settings = Settings::of(flags)?;
        let out = Out::new(settings.json);
        Ok(Self { settings, out })
    }

    /// A client of the API listener.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn api(&self) -> Result<Client> {
        Client::new(&self.settings, Door::Api)
    }
}
