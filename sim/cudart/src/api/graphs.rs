//! Stream capture and graphs.

use super::copies::{linear, node_3d};
use super::structs::Memcpy3dParameters;
use crate::abi::{In, Opaque, Out};
use crate::driver::{DefaultStream, Driver};
use crate::entry::api;
use crate::error::Result;
use crate::{flavour, thread};

/// The facts about a capture that a program asks for besides its status; each may be NULL.
#[derive(Clone, Copy)]
struct Details {
    id: Out<u64>,
    graph: Opaque,
    after: Opaque,
    edges: Opaque,
    count: Opaque,
}

impl Details {
    fn of(id: Out<u64>) -> Details {
        Details { id, graph: Opaque::NULL, after: Opaque::NULL, edges: Opaque::NULL, count: Opaque::NULL }
    }
}

fn capture_info(
    driver: &Driver,
    default: DefaultStream,
    stream: u64,
    status: Out<u32>,
    details: Details,
) -> Result<()> {
    thread::bind(driver)?;
    let Details { id, graph, after, edges, count } = details;
    driver.cuStreamGetCaptureInfo(default, stream, status, id, graph, after, edges, count)
}

api! {
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz [driver, default] (stream: u64, mode: u32) {
        thread::bind(driver)?;
        driver.cuStreamBeginCapture(default, stream, mode)
    }

    /// As of 12.3.
    fn cudaStreamBeginCaptureToGraph | cudaStreamBeginCaptureToGraph_ptsz [driver, default] (
        stream: u64,
        graph: u64,
        after: Opaque,
        edges: Opaque,
        count: u64,
        mode: u32,
    ) {
        thread::bind(driver)?;
        driver.cuStreamBeginCaptureToGraph(default, stream, graph, after, edges, count, mode)
    }

    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz [driver, default] (stream: u64, graph: Out<u64>) {
        thread::bind(driver)?;
        driver.cuStreamEndCapture(default, stream, graph)
    }

    fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz [driver, default] (stream: u64, status: Out<u32>) {
        thread::bind(driver)?;
        driver.cuStreamIsCapturing(default, stream, status)
    }

    /// Before 13.0 it had three arguments.
    fn cudaStreamGetCaptureInfo | cudaStreamGetCaptureInfo_ptsz [driver, default] (
        stream: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Opaque,
        after: Opaque,
        edges: Opaque,
        count: Opaque,
    ) {
        let all = Details { id, graph, after, edges, count };
        let details = if flavour::major() >= 13 { all } else { Details::of(id) };
        capture_info(driver, default, stream, status, details)
    }

    fn cudaStreamGetCaptureInfo_v2 | cudaStreamGetCaptureInfo_v2_ptsz [driver, default] (
        stream: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Opaque,
        after: Opaque,
        count: Opaque,
    ) {
        capture_info(driver, default, stream, status, Details { graph, after, count, ..Details::of(id) })
    }

    fn cudaStreamGetCaptureInfo_v3 | cudaStreamGetCaptureInfo_v3_ptsz [driver, default] (
        stream: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Opaque,
        after: Opaque,
        edges: Opaque,
        count: Opaque,
    ) {
        capture_info(driver, default, stream, status, Details { id, graph, after, edges, count })
    }

    fn cudaThreadExchangeStreamCaptureMode [driver] (mode: Out<u32>) {
        driver.cuThreadExchangeStreamCaptureMode(mode)
    }

    fn cudaGraphCreate [driver] (graph: Out<u64>, flags: u32) {
        driver.cuGraphCreate(graph, flags)
    }

    fn cudaGraphDestroy [driver] (graph: u64) {
        driver.cuGraphDestroy(graph)
    }

    fn cudaGraphGetNodes [driver] (graph: u64, nodes: Opaque, count: Out<u64>) {
        driver.cuGraphGetNodes(graph, nodes, count)
    }

    fn cudaGraphAddMemcpyNode1D [driver] (
        node: Out<u64>,
        graph: u64,
        after: Opaque,
        count: u64,
        dst: u64,
        src: u64,
        size: u64,
        kind: u32,
    ) {
        thread::bind(driver)?;
        let copy = linear(dst, src, size, kind)?;
        driver.cuGraphAddMemcpyNode(node, graph, after, count, &raw const copy, 0)
    }

    fn cudaGraphAddMemcpyNode [driver] (
        node: Out<u64>,
        graph: u64,
        after: Opaque,
        count: u64,
        parameters: In<Memcpy3dParameters>,
    ) {
        thread::bind(driver)?;
        let copy = node_3d(driver, parameters)?;
        driver.cuGraphAddMemcpyNode(node, graph, after, count, &raw const copy, 0)
    }

    fn cudaGraphAddChildGraphNode [driver] (node: Out<u64>, graph: u64, after: Opaque, count: u64, child: u64) {
        driver.cuGraphAddChildGraphNode(node, graph, after, count, child)
    }

    fn cudaGraphExecMemcpyNodeSetParams1D [driver] (exec: u64, node: u64, dst: u64, src: u64, size: u64, kind: u32) {
        thread::bind(driver)?;
        let copy = linear(dst, src, size, kind)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &raw const copy, 0)
    }

    fn cudaGraphExecMemcpyNodeSetParams [driver] (exec: u64, node: u64, parameters: In<Memcpy3dParameters>) {
        thread::bind(driver)?;
        let copy = node_3d(driver, parameters)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &raw const copy, 0)
    }

    fn cudaGraphExecChildGraphNodeSetParams [driver] (exec: u64, node: u64, child: u64) {
        driver.cuGraphExecChildGraphNodeSetParams(exec, node, child)
    }

    fn cudaGraphChildGraphNodeGetGraph [driver] (node: u64, graph: Out<u64>) {
        driver.cuGraphChildGraphNodeGetGraph(node, graph)
    }

    fn cudaGraphNodeSetEnabled [driver] (exec: u64, node: u64, is_enabled: u32) {
        driver.cuGraphNodeSetEnabled(exec, node, is_enabled)
    }

    /// Since 12.0 the third argument is what all results are stored in, and the last one.
    fn cudaGraphExecUpdate [driver] (exec: u64, graph: u64, third: Out<u64>, result: Out<u32>) {
        thread::bind(driver)?;
        if flavour::major() >= 12 {
            return driver.cuGraphExecUpdate_v2(exec, graph, Opaque(third.address() as *mut _));
        }
        driver.cuGraphExecUpdate(exec, graph, third, result)
    }

    /// Since 12.0 the third argument is the flags, and the last one.
    fn cudaGraphInstantiate [driver] (exec: Out<u64>, graph: u64, third: u64, log: Opaque, room: u64) {
        thread::bind(driver)?;
        if flavour::major() >= 12 {
            return driver.cuGraphInstantiateWithFlags(exec, graph, third);
        }
        driver.cuGraphInstantiate(exec, graph, Opaque(third as *mut _), log, room)
    }

    fn cudaGraphInstantiateWithFlags [driver] (exec: Out<u64>, graph: u64, flags: u64) {
        thread::bind(driver)?;
        driver.cuGraphInstantiateWithFlags(exec, graph, flags)
    }

    /// As of 12.0.
    fn cudaGraphInstantiateWithParams | cudaGraphInstantiateWithParams_ptsz [driver, default] (
        exec: Out<u64>,
        graph: u64,
        parameters: Opaque,
    ) {
        thread::bind(driver)?;
        driver.cuGraphInstantiateWithParams(default, exec, graph, parameters)
    }

    fn cudaGraphUpload | cudaGraphUpload_ptsz [driver, default] (exec: u64, stream: u64) {
        thread::bind(driver)?;
        driver.cuGraphUpload(default, exec, stream)
    }

    fn cudaGraphLaunch | cudaGraphLaunch_ptsz [driver, default] (exec: u64, stream: u64) {
        thread::bind(driver)?;
        driver.cuGraphLaunch(default, exec, stream)
    }

    fn cudaGraphExecDestroy [driver] (exec: u64) {
        driver.cuGraphExecDestroy(exec)
    }
}
