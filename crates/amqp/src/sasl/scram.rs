//! SCRAM-SHA-256 (RFC 5802, RFC 7677): keys, proofs, and the text of the messages.
//!
//! Without channel binding. Names and passwords are prepared (`prepared`) before they are compared,
//! and control characters in a name are refused.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::prepared;

/// Fewest iterations that either side takes part in (RFC 7677, section 4).
pub const ITERATIONS_MIN: u32 = 4_096;
/// Most iterations that either side takes part in: some seconds of work.
pub const ITERATIONS_MAX: u32 = 10_000_000;
/// Iterations of new credentials, and of users that do not exist.
pub const ITERATIONS_DEFAULT: u32 = 10_000;

/// A SHA-256 digest.
pub(super) type Key = [u8; 32];

/// What a server keeps of a password (RFC 5802, section 3). It proves the password, but does not
/// reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredentials {
    salt: Arc<[u8]>,
    iterations: u32,
    stored_key: Key,
    server_key: Key,
}

impl ScramCredentials {
    /// Credentials that were stored. `None` when the iterations are out of bounds (4,096 to
    /// 10,000,000) or the salt is empty.
    #[must_use]
    pub fn new(
        salt: &[u8],
        iterations: u32,
        stored_key: [u8; 32],
        server_key: [u8; 32],
    ) -> Option<ScramCredentials> {
        let fit = (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) && !salt.is_empty();
        fit.then(|| ScramCredentials { salt: Arc::from(salt), iterations, stored_key, server_key })
    }

    /// Credentials of a password. The salt must be random, 16 bytes or more. `None` as in
    /// [`ScramCredentials::new`].
    #[must_use]
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Option<ScramCredentials> {
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return None;
        }
        let salted = salted_password(password, salt, iterations);
        let stored_key = hash(&mac(&salted, &[b"Client Key"]));
        ScramCredentials::new(salt, iterations, stored_key, mac(&salted, &[b"Server Key"]))
    }

    /// Credentials that no password fits, the same ones for a user whenever they are asked for.
    /// Their iterations are one of `iterations`, those of the users that exist; the default if none
    /// do.
    #[must_use]
    pub fn of_unknown_user(user: &str, secret: &[u8], iterations: &[u32]) -> ScramCredentials {
        let made = mac(secret, &[b"salt", user.as_bytes()]);
        let drawn = made.last_chunk::<8>().map_or(0, |drawn| u64::from_be_bytes(*drawn));
        let place = usize::try_from(drawn).unwrap_or_default().checked_rem(iterations.len());
        let iterations = place.and_then(|place| iterations.get(place)).copied();
        ScramCredentials {
            salt: Arc::from(made.first_chunk::<16>().map_or(&made[..], |salt| salt)),
            iterations: iterations.unwrap_or(ITERATIONS_DEFAULT),
            stored_key: mac(secret, &[b"stored key", user.as_bytes()]),
            server_key: mac(secret, &[b"server key", user.as_bytes()]),
        }
    }

    /// A secret for [`ScramCredentials::of_unknown_user`] that a restart and other instances make
    /// again.
    #[must_use]
    pub fn secret_of_others(&self) -> [u8; 32] {
        mac(&self.server_key, &[b"credentials of users that do not exist"])
    }

    /// Whether it is the password (for PLAIN). Takes as long as the iterations take.
    #[must_use]
    pub fn fits(&self, password: &str) -> bool {
        let salted = salted_password(password, &self.salt, self.iterations);
        hash(&mac(&salted, &[b"Client Key"])).ct_eq(&self.stored_key).into()
    }

    /// The salt.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How often the password is hashed.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// H(ClientKey).
    #[must_use]
    pub const fn stored_key(&self) -> &[u8; 32] {
        &self.stored_key
    }

    /// Signs for the server.
    #[must_use]
    pub const fn server_key(&self) -> &[u8; 32] {
        &self.server_key
    }

    /// Whether `proof` proves the password for this exchange.
    pub(super) fn verify(&self, authentication: &[u8], proof: &Key) -> bool {
        let signature = mac(&self.stored_key, &[authentication]);
        hash(&xor(proof, &signature)).ct_eq(&self.stored_key).into()
    }

    /// What proves to the client that the server knows these credentials.
    pub(super) fn server_signature(&self, authentication: &[u8]) -> Key {
        mac(&self.server_key, &[authentication])
    }
}

impl fmt::Debug for ScramCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScramCredentials")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// What a client sends and expects, from the password.
pub(super) struct ClientKeys {
    /// Goes to the server.
    pub(super) proof: Key,
    /// Must come from the server.
    pub(super) server_signature: Key,
}

impl ClientKeys {
    pub(super) fn derive(
        password: &str,
        salt: &[u8],
        iterations: u32,
        authentication: &[u8],
    ) -> ClientKeys {
        let salted = salted_password(password, salt, iterations);
        let client_key = mac(&salted, &[b"Client Key"]);
        let signature = mac(&hash(&client_key), &[authentication]);
        let server_key = mac(&salted, &[b"Server Key"]);
        ClientKeys {
            proof: xor(&client_key, &signature),
            server_signature: mac(&server_key, &[authentication]),
        }
    }
}

/// HMAC-SHA-256 of the parts, one after the other.
fn mac(key: &[u8], parts: &[&[u8]]) -> Key {
    // HMAC takes keys of every length, so the fallback is never used.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap_or_else(|_| {
        <Hmac<Sha256> as KeyInit>::new(&hmac::digest::Key::<Hmac<Sha256>>::default())
    });
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn hash(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

fn xor(left: &Key, right: &Key) -> Key {
    let mut result = *left;
    result.iter_mut().zip(right).for_each(|(byte, other)| *byte ^= other);
    result
}

fn salted_password(password: &str, salt: &[u8], iterations: u32) -> Key {
    pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(prepared(password).as_bytes(), salt, iterations)
}

pub(super) fn encode_64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

pub(super) fn decode_64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

/// The first message of a client (RFC 5802, section 7, client-first-message).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    /// `n,,` or `y,,`, with the authorization identity if any.
    pub(super) gs2_header: &'a str,
    pub(super) bare: &'a str,
    pub(super) user: String,
    pub(super) nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// `None` when it is malformed, binds a channel, or wants an extension.
    pub(super) fn parse(message: &'a str) -> Option<ClientFirst<'a>> {
        let (flag, rest) = message.split_once(',')?;
        let (authorization, bare) = rest.split_once(',')?;
        let gs2_header = message.get(..message.len().checked_sub(bare.len())?)?;
        if !matches!(flag, "n" | "y") {
            return None;
        }
        let authorized = match authorization.strip_prefix("a=") {
            Some(name) => Some(decode_name(name)?),
            None if authorization.is_empty() => None,
            None => return None,
        };
        let mut attributes = bare.split(',');
        let user = decode_name(attributes.next()?.strip_prefix("n=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        // Acting as another user is not offered.
        let itself = authorized.is_none_or(|name| name == user);
        (itself && is_nonce(nonce)).then_some(ClientFirst { gs2_header, bare, user, nonce })
    }
}

/// The last message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    pub(super) channel_binding: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) without_proof: &'a str,
    pub(super) proof: Key,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn parse(message: &'a str) -> Option<ClientFinal<'a>> {
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let channel_binding = decode_64(attributes.next()?.strip_prefix("c=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        let proof = Key::try_from(decode_64(proof)?).ok()?;
        Some(ClientFinal { channel_binding, nonce, without_proof, proof })
    }
}

/// The first message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a str,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(super) fn parse(message: &'a str) -> Option<ServerFirst<'a>> {
        let mut attributes = message.split(',');
        let nonce = attributes.next()?.strip_prefix("r=")?;
        let salt = decode_64(attributes.next()?.strip_prefix("s=")?)?;
        let iterations = attributes.next()?.strip_prefix("i=")?.parse().ok()?;
        (is_nonce(nonce) && !salt.is_empty()).then_some(ServerFirst { nonce, salt, iterations })
    }
}

/// Printable ASCII without a comma.
pub(super) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// A name as it stands in a message: `,` and `=` are escaped.
pub(super) fn encode_name(name: &str) -> String {
    prepared(name).replace('=', "=3D").replace(',', "=2C")
}

fn decode_name(text: &str) -> Option<String> {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('=') {
        name.push_str(plain);
        rest = if let Some(after) = escaped.strip_prefix("2C") {
            name.push(',');
            after
        } else {
            name.push('=');
            escaped.strip_prefix("3D")?
        };
    }
    name.push_str(rest);
    let name = prepared(&name);
    (!name.is_empty() && !name.chars().any(char::is_control)).then(|| name.into_owned())
}
