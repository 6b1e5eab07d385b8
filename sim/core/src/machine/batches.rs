//! Batches: many copies by one call.

use std::result;
use std::sync::{Arc, MutexGuard};

use super::copies::{Completion, Sent};
use super::{Machine, State, StreamRef};
use crate::abi::Null;
use crate::error::{Error, Result};
use crate::graph::{BatchCopy, Step};
use crate::stream::{Role, Stream};
use crate::transfer::{Memory, Request, Transfer};

/// Why a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// The call ends with this.
    pub error: Error,
    /// Which of the copies is to blame, if one is.
    pub index: Option<usize>,
}

impl BatchError {
    /// An error that one of the copies is to blame for.
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
    /// Makes all of these copies on a stream or, if one cannot be made, none. The legacy default stream takes no batch. Drivers before
    /// 13.5 do not capture one, and leave the capture as it is, so users report. Without a context the batch itself is at fault, as was
    /// measured.
    pub fn copy_batch(&self, stream: StreamRef, copies: &[(Request, Completion)]) -> result::Result<(), BatchError> {
        let mut state = self.lock();
        let no_context = |error| if error == Error::INVALID_CONTEXT { Error::INVALID_VALUE } else { error };
        let stream = state.stream(stream).map_err(no_context)?;
        if stream.role == Role::Legacy {
            return Err(Error::INVALID_VALUE.into());
        }
        if state.captures.info(&stream).is_some() {
            return Ok(self.capture_batch(state, &stream, copies)?);
        }
        let mut transfers = Vec::with_capacity(copies.len());
        for (index, (request, completion)) in copies.iter().enumerate() {
            let at = |error| BatchError::at(index, error);
            let transfer = state.transfer_of_batch(request).map_err(at)?;
            transfer.map_or(Ok(()), |transfer| state.refuse_beyond_rights(stream.context, transfer)).map_err(at)?;
            transfers.extend(transfer.map(|transfer| (transfer, *completion)));
        }
        let send = |(transfer, completion)| state.send(&stream, transfer, completion);
        let sent = transfers.into_iter().map(send).collect::<Result<Vec<Sent>>>()?;
        drop(state);
        sent.iter().for_each(Sent::finish);
        Ok(self.lock().intact(stream.context)?)
    }

    /// Captures a batch, if the driver can.
    fn capture_batch(
        &self,
        mut state: MutexGuard<'_, State>,
        stream: &Arc<Stream>,
        copies: &[(Request, Completion)],
    ) -> Result<()> {
        state.captures.of(stream)?;
        if !self.config.has_batch_nodes() {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        let requests: Vec<Request> = copies.iter().map(|(request, _)| *request).collect();
        let batch = state.batch(&requests)?;
        state.capture(stream, &batch).map(drop)
    }

    /// Refuses a 3D batch on a stream that captures before anything else is looked at.
    pub fn refuse_captured_batch(&self, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let Ok(stream) = state.stream(stream) else { return Ok(()) };
        if state.captures.info(&stream).is_some() { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}

impl State {
    /// A step that makes these copies.
    pub(super) fn batch(&self, requests: &[Request]) -> Result<Step> {
        let one = |&request: &Request| {
            let is_empty = request.extent.is_empty();
            let step = if is_empty { None } else { Some(Box::new(Step::Copy(self.loose_transfer(&request)?))) };
            Ok(BatchCopy { request, step })
        };
        requests.iter().map(one).collect::<Result<_>>().map(Step::Batch)
    }

    /// A copy of a batch, which has to copy something. None if there is nothing at its destination any more: one row is accepted then,
    /// as was measured. For more rows, and for a source, a real driver crashes.
    fn transfer_of_batch(&self, request: &Request) -> Result<Option<Transfer>> {
        let transfer = self.loose_transfer(request)?;
        match transfer.memories() {
            [Memory::Gone { .. }, _] => Err(Error::INVALID_VALUE),
            [_, Memory::Gone { .. }] if !request.extent.is_one_row() => Err(Error::INVALID_VALUE),
            [_, Memory::Gone { .. }] => Ok(None),
            _ => Ok(Some(transfer)),
        }
    }
}
