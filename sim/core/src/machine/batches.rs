//! Batches: many copies by one call.

use std::result;

use super::copies::{Completion, Request, Sent};
use super::{Machine, StreamRef};
use crate::abi::Null;
use crate::error::{Error, Result};
use crate::stream::Role;

/// Why a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// What the call ends with.
    pub error: Error,
    /// Which of the copies is to blame, if one is.
    pub index: Option<usize>,
}

impl BatchError {
    /// One of the copies is to blame.
    pub fn at(index: usize, error: Error) -> BatchError {
        BatchError { error, index: Some(index) }
    }
}

impl From<Error> for BatchError {
    fn from(error: Error) -> BatchError {
        BatchError { error, index: None }
    }
}

impl From<Null> for BatchError {
    fn from(null: Null) -> BatchError {
        Error::from(null).into()
    }
}

impl From<BatchError> for Error {
    fn from(refused: BatchError) -> Error {
        refused.error
    }
}

impl Machine {
    /// Makes all of these copies on a stream or, if one cannot be made, none. The legacy default stream takes no batch; nor
    /// does a stream that captures, whose capture is lost.
    pub fn copy_batch(&self, stream: StreamRef, copies: &[(Request, Completion)]) -> result::Result<(), BatchError> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        if stream.role == Role::Legacy {
            return Err(Error::INVALID_VALUE.into());
        }
        state.captures.refuse_on(|capturing| capturing.id == stream.id)?;
        let mut transfers = Vec::with_capacity(copies.len());
        for (index, (request, completion)) in copies.iter().enumerate() {
            if !request.extent.is_empty() {
                let transfer = state.transfer(request).map_err(|error| BatchError::at(index, error))?;
                transfers.push((transfer, *completion));
            }
        }
        let send = |(transfer, completion)| state.send(&stream, transfer, completion);
        let sent = transfers.into_iter().map(send).collect::<Result<Vec<Sent>>>()?;
        drop(state);
        sent.iter().for_each(Sent::finish);
        Ok(self.lock().intact(stream.context)?)
    }
}
