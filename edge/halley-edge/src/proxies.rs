//! The settings for proxies in front of the edge (`protocol/http.md` 17).

use std::rc::Rc;

use crate::limits::networks::Networks;

/// Largest value of `proxy_header_bytes_max`: what is looked at fits the buffer for reads.
const PROXY_HEADER_BYTES_LIMIT: usize = 16_384;

/// What the settings say of proxies in front of the edge.
#[derive(Clone, Debug)]
pub struct Proxies {
    /// Their addresses.
    pub trusted: Rc<Networks>,
    /// Do they begin connections to the public listener with the PROXY protocol's header?
    pub public_speaks: bool,
    /// And to the API's?
    pub api_speaks: bool,
    /// Do they name clients by `X-Forwarded-For`?
    pub forwarded_for: bool,
    /// Longest header.
    pub header_bytes_max: usize,
    /// For the header to arrive.
    pub header_ms_max: u64,
}

impl Default for Proxies {
    fn default() -> Self {
        Proxies {
            trusted: Rc::default(),
            public_speaks: false,
            api_speaks: false,
            forwarded_for: false,
            header_bytes_max: 1_024,
            header_ms_max: 5_000,
        }
    }
}

impl Proxies {
    /// Takes a setting that is about proxies; another is ignored. `None` when its value can't be
    /// used.
    pub fn set(&mut self, name: &[u8], value: &str) -> Option<()> {
        let number = || value.parse::<u32>().ok().filter(|n| *n > 0);
        let on = || match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        match name {
            b"proxy_trusted" => self.trusted = Rc::new(Networks::parse(value)?),
            b"public_proxy_protocol" => self.public_speaks = on()?,
            b"api_proxy_protocol" => self.api_speaks = on()?,
            b"proxy_forwarded_for" => self.forwarded_for = on()?,
            b"proxy_header_bytes_max" => {
                let bytes = number()? as usize;
                self.header_bytes_max = Some(bytes).filter(|n| *n <= PROXY_HEADER_BYTES_LIMIT)?;
            }
            b"proxy_header_ms_max" => self.header_ms_max = number()?.into(),
            _ => {}
        }
        Some(())
    }
}
