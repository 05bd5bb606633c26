//! Where a server is: `http://HOST:PORT`.
//!
//! Invariant: an [`Origin`] can be connected to and named in `Host` as it stands. Pure.

use std::fmt;
use std::str::FromStr;

use url::Url;

/// Scheme (always http), host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// `HOST:PORT`, to connect to.
    pub address: String,
    /// As in `Host`: without the port if it is 80.
    pub authority: String,
}

impl Origin {
    /// The origin of a URL; the error says what is allowed instead.
    pub fn of(url: &Url) -> Result<Self, String> {
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(
                    "https is not available in this version: give an http:// address, as of a proxy \
                            on this machine"
                        .to_owned(),
                );
            }
            other => return Err(format!("{other}: is no scheme of servers: give http://HOST:PORT")),
        }
        let host = url.host_str().filter(|h| !h.is_empty()).ok_or("give http://HOST:PORT")?;
        let port = url.port_or_known_default().unwrap_or(80);
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { address: format!("{host}:{port}"), authority })
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || "give http://HOST:PORT".to_owned();
        // `localhost:4437` parses as a URL of the scheme `localhost`.
        if !text.contains("://") {
            let meant = format!("http://{text}").parse::<Url>().is_ok_and(|url| url.has_host());
            return Err(match meant {
                true => format!("the scheme is missing; type instead: http://{text}"),
                false => shape(),
            });
        }
        let url: Url = text.parse().map_err(|_e| shape())?;
        let origin = Self::of(&url)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("user and password have no place in it: give http://HOST:PORT".to_owned());
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(format!(
                "nothing may follow the port; type instead: http://{}{}",
                origin.authority,
                url.path()
                    .strip_prefix("/v1/stream/")
                    .map_or_else(String::new, |n| format!(" and the name {n}"))
            ));
        }
        Ok(origin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_host_and_port() {
        for (text, address, authority) in [
            ("http://127.0.0.1:4437", "127.0.0.1:4437", "127.0.0.1:4437"),
            ("http://127.0.0.1:4437/", "127.0.0.1:4437", "127.0.0.1:4437"),
            ("http://weir.example", "weir.example:80", "weir.example"),
            ("http://weir.example:80", "weir.example:80", "weir.example"),
            ("http://[::1]:1", "[::1]:1", "[::1]:1"),
        ] {
            let origin: Origin = text.parse().unwrap();
            assert_eq!((origin.address.as_str(), origin.authority.as_str()), (address, authority), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_says_what_to_type() {
        for (text, says) in [
            ("", "give http://HOST:PORT"),
            ("localhost:4437", "type instead: http://localhost:4437"),
            ("127.0.0.1:4437", "type instead: http://127.0.0.1:4437"),
            ("weir.example", "type instead: http://weir.example"),
            ("https://weir.example", "https is not available"),
            ("ftp://weir.example", "ftp: is no scheme of servers"),
            ("http://", "give http://HOST:PORT"),
            ("http://a:b@c", "user and password have no place"),
            ("http://a:99999", "give http://HOST:PORT"),
            ("http://a:1/x", "type instead: http://a:1"),
            ("http://a:1/v1/stream/notes", "type instead: http://a:1 and the name notes"),
            ("http://a:1?x", "nothing may follow the port"),
        ] {
            let why = text.parse::<Origin>().unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
