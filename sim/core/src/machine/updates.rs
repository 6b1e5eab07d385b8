//! Changing graphs that are ready to run.

use std::sync::Arc;

use super::{ExecHandle, GraphHandle, Machine, NodeHandle, State};
use crate::error::{Error, Result};
use crate::graph::{BatchCopy, Step, Unlike};
use crate::transfer::{Request, Transfer};
use crate::work::Path;

impl Machine {
    /// Has a ready graph do what a graph of the same shape does now; copies keep their way. Says why, if it cannot.
    pub fn update_exec(&self, exec: ExecHandle, handle: GraphHandle) -> Result<std::result::Result<(), Unlike>> {
        let mut state = self.lock();
        let known = state.execs.get(&exec).ok_or(Error::INVALID_VALUE)?;
        let steps = Arc::clone(&known.steps);
        if let Err(unlike) = known.shape.refuse(&state.shape(handle)?) {
            return Ok(Err(unlike));
        }
        let new = state.flat(handle)?;
        let changed = new.into_iter().zip(steps.iter()).map(|((_, step), known)| state.changed(step, known));
        let Some(changed) = changed.collect::<Option<Vec<_>>>() else { return Ok(Err(Unlike::Copy)) };
        state.execs.get_mut(&exec).ok_or(Error::UNKNOWN)?.steps = changed.into();
        Ok(Ok(()))
    }

    /// Has a node of a ready graph copy something else. More than one row has to be what it was, as was measured.
    pub fn set_exec_copy_node(&self, exec: ExecHandle, node: NodeHandle, request: &Request) -> Result<()> {
        let mut state = self.lock();
        let transfer = state.loose_transfer(request)?;
        let known = state.execs.get(&exec).ok_or(Error::INVALID_VALUE)?;
        let mut steps = known.steps.to_vec();
        let place = known.nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
        let step = steps.get_mut(place).ok_or(Error::UNKNOWN)?;
        let Step::Fixed(before, ..) = step else { return Err(Error::INVALID_VALUE) };
        let are_rows = transfer.is_one_row() && before.is_one_row();
        if !are_rows && transfer.request() != before.request() {
            return Err(Error::INVALID_VALUE);
        }
        *step = state.changed(Step::Copy(transfer), step).ok_or(Error::INVALID_VALUE)?;
        state.execs.get_mut(&exec).ok_or(Error::UNKNOWN)?.steps = steps.into();
        Ok(())
    }

    /// Has a node of a ready graph that makes several copies make as many others.
    pub fn set_exec_batch_node(&self, exec: ExecHandle, node: NodeHandle, requests: &[Request]) -> Result<()> {
        let mut state = self.lock();
        let batch = state.batch(requests)?;
        let known = state.execs.get(&exec).ok_or(Error::INVALID_VALUE)?;
        let mut steps = known.steps.to_vec();
        let place = known.nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
        let step = steps.get_mut(place).filter(|step| step.is_like(&batch)).ok_or(Error::INVALID_VALUE)?;
        *step = state.changed(batch, step).ok_or(Error::INVALID_VALUE)?;
        state.execs.get_mut(&exec).ok_or(Error::UNKNOWN)?.steps = steps.into();
        Ok(())
    }

    /// Has a child of a ready graph be another graph of the same shape.
    pub fn set_exec_child_node(&self, exec: ExecHandle, node: NodeHandle, child: GraphHandle) -> Result<()> {
        let mut state = self.lock();
        let Some(&Step::Child(inner)) = state.graphs.values().find_map(|graph| graph.step(node)) else {
            return Err(Error::INVALID_VALUE);
        };
        let known = state.execs.get(&exec).ok_or(Error::INVALID_VALUE)?;
        let (nodes, mut steps) = (known.nodes.clone(), known.steps.to_vec());
        state.shape(inner)?.refuse(&state.shape(child)?).map_err(|_| Error::GRAPH_EXEC_UPDATE_FAILURE)?;
        for ((node, _), (_, step)) in state.flat(inner)?.into_iter().zip(state.flat(child)?) {
            let place = nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
            let known = steps.get_mut(place).ok_or(Error::UNKNOWN)?;
            *known = state.changed(step, known).ok_or(Error::GRAPH_EXEC_UPDATE_FAILURE)?;
        }
        state.execs.get_mut(&exec).ok_or(Error::UNKNOWN)?.steps = steps.into();
        Ok(())
    }
}

impl State {
    /// A step of a ready graph that is to do as another does, of the same kind. None if it cannot.
    fn changed(&mut self, step: Step, known: &Step) -> Option<Step> {
        match (step, known) {
            (Step::Copy(transfer), Step::Fixed(before, path, gate)) => {
                let is_other = transfer.request() != before.request();
                // Measured: once access is enabled, a staged copy can only be made as it is.
                if !transfer.is_named_like(before)
                    || is_other && *path == Path::Staged && self.way(transfer).0 == Path::Direct
                {
                    None
                } else if keeps_way(&transfer, before, *path) {
                    Some(Step::Fixed(transfer, *path, gate.clone()))
                } else {
                    self.turned(transfer, before, *path)
                }
            }
            (Step::Batch(new), Step::Batch(known)) if new.len() == known.len() => {
                let pairs = new.into_iter().zip(known);
                let changed = pairs.map(|(BatchCopy { request, step }, known)| {
                    // A copy of nothing had no way that could be kept.
                    let step = match (step, &known.step) {
                        (None, _) => None,
                        (Some(step), Some(known)) => Some(Box::new(self.changed(*step, known)?)),
                        (Some(step), None) => Some(Box::new(self.fixed(*step).ok()?)),
                    };
                    Some(BatchCopy { request, step })
                });
                changed.collect::<Option<_>>().map(Step::Batch)
            }
            (Step::Batch(_), _) => None,
            (step, _) => Some(step),
        }
    }

    /// A direct copy that is to go elsewhere from the same device, which makes it: measured where it then stays on that device.
    fn turned(&mut self, transfer: Transfer, before: &Transfer, path: Path) -> Option<Step> {
        let (path_now, gate) = if path == Path::Direct { self.way(transfer) } else { return None };
        let is_of_same_device = source(&transfer) == source(before);
        let is_possible = is_of_same_device && matches!(path_now, Path::Direct | Path::SameDevice);
        is_possible.then_some(Step::Fixed(transfer, path_now, gate))
    }
}

/// Whether a copy can go the way that another goes: between the same devices and, if that is by way of the host, to the same allocation.
/// Both were measured.
fn keeps_way(transfer: &Transfer, before: &Transfer, path: Path) -> bool {
    let device = |(device, _base): (usize, u64)| device;
    let devices = |of: &Transfer| of.memories().map(|memory| memory.on_device().map(device));
    let destination = |of: &Transfer| of.memories()[1].on_device();
    devices(transfer) == devices(before) && (path != Path::Staged || destination(transfer) == destination(before))
}

/// The device that a copy reads from.
fn source(transfer: &Transfer) -> Option<usize> {
    let [source, _] = transfer.memories();
    source.on_device().map(|(device, _)| device)
}
