//! Refusals of the guest as SFTP has them. Pure.

use protocol::FaultCode;

use agent_client::guest::GuestError;

use super::packet::Status;

/// How SFTP says that the guest has refused.
pub fn refused(error: &GuestError) -> Status {
    const ENOENT: i32 = 2;
    const DENIED: [i32; 3] = [1, 13, 30];
    let GuestError::Fault(fault) = error else { return Status::Failure(error.to_string()) };
    let why = fault.message.clone();
    match (fault.code, fault.errno) {
        (FaultCode::NotFound, _) | (_, Some(ENOENT)) => Status::NoSuchFile(why),
        (FaultCode::Denied, _) => Status::Denied(why),
        (_, Some(errno)) if DENIED.contains(&errno) => Status::Denied(why),
        _ => Status::Failure(why),
    }
}
