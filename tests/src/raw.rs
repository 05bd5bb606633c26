//! Bytes over a socket, for requests that no HTTP library would send.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends `request` as it is and reads until the server closes; fails if it stays open for `deadline`.
pub async fn until_closed(address: &str, request: &[u8], deadline: Duration) -> Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(request).await?;
    let mut answer = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        loop {
            match socket.read(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(n) => answer.extend_from_slice(&buffer[..n]),
                // A reset closes too; what came before it counts.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    };
    let result = tokio::time::timeout(deadline, read).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    result.with_context(|| format!("the connection is still open after {answer:?}"))??;
    Ok(answer)
}
