//! Records that can be told apart: whose each is, which, and every byte that it should have.
//!
//! Invariant: a record is a pure function of (connection, number, size), so that whoever reads it back knows all of it; it
//! is printable ASCII, and one JSON string if the stream is JSON, so that it crosses every content type unchanged.

/// Whose record it is, and which: 8 and 12 hexadecimal digits.
const CONNECTION: usize = 8;
const NUMBER: usize = 12;
/// What a record begins with: `@`, connection, number.
pub const MARK: usize = 1 + CONNECTION + NUMBER;
/// The shortest record that can be told apart.
pub const LEAST: usize = MARK + 3;

/// How far the filling is turned from one record to the next.
const TURNS: usize = 61;

/// Makes records of one size.
#[derive(Debug, Clone)]
pub struct Maker {
    size: usize,
    json: bool,
    filling: Vec<u8>,
}

impl Maker {
    /// Records of `size` bytes, at least [`LEAST`].
    pub fn new(size: usize, json: bool) -> Self {
        let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let filling = (0..size + TURNS).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            letters[(state >> 58) as usize]
        });
        Self { size, json, filling: filling.collect() }
    }

    /// A record's size.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether a record is a JSON string.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes one over `out`, which is of the records' size.
    pub fn fill(&self, connection: u32, number: u64, out: &mut [u8]) {
        let quotes = usize::from(self.json);
        let last = out.len() - 1;
        let inner = &mut out[quotes..=last - quotes];
        let (mark, rest) = inner.split_at_mut(MARK);
        mark[0] = b'@';
        hex(u64::from(connection), &mut mark[1..=CONNECTION]);
        hex(number, &mut mark[1 + CONNECTION..]);
        let turn = usize::try_from(number % TURNS as u64).unwrap_or(0);
        let length = rest.len();
        rest.copy_from_slice(&self.filling[turn..turn + length]);
        if self.json {
            (out[0], out[last]) = (b'"', b'"');
        }
    }

    /// One record.
    pub fn make(&self, connection: u32, number: u64) -> Vec<u8> {
        let mut out = vec![0; self.size];
        self.fill(connection, number, &mut out);
        out
    }
}

/// Reads a mark: connection and number. `None` if that is no mark.
pub fn mark(bytes: &[u8]) -> Option<(u32, u64)> {
    let rest = bytes.strip_prefix(b"@")?;
    let connection = unhex(rest.get(..CONNECTION)?)?;
    let number = unhex(rest.get(CONNECTION..CONNECTION + NUMBER)?)?;
    Some((u32::try_from(connection).ok()?, number))
}

fn hex(mut n: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(n & 15) as usize];
        n >>= 4;
    }
}

fn unhex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |n, b| {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            _ => return None,
        };
        Some(n << 4 | u64::from(digit))
    })
}
