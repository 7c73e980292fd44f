//! Pseudorandom numbers, reproducible from a seed, and incompressible bytes.

/// A small generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to below 1.
    pub(crate) fn next(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a random moment needs no more than 53 bits")]
        let fraction = (self.step() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }

    /// A whole number below this one.
    pub(crate) fn below(&mut self, number: usize) -> usize {
        let number = u64::try_from(number).expect("64 bits at most");
        usize::try_from(self.step() % number).expect("below a usize")
    }

    /// Returns `length` bytes of noise.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.step().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Returns `length` bytes of noise, the same every time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    Random(0x9E37_79B9_7F4A_7C15).bytes(length)
}

/// Returns `length` bytes of noise that belong to a name: no other name has the same.
pub(crate) fn noise_of(name: &str, length: usize) -> Vec<u8> {
    let seed =
        name.bytes().fold(0xCBF2_9CE4_8422_2325, |seed: u64, b| (seed ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    Random(seed | 1).bytes(length)
}

/// A number that the environment may say, in decimals: the long form of a test is asked for so.
pub(crate) fn number(name: &str, otherwise: usize) -> usize {
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}
