//! What a sandbox reaches on the network, and the secrets that the bridge adds to its requests.

mod egress;
mod secrets;
