// SPDX-License-Identifier: GPL-2.0-only

//! Access of the test module's raw peers to a connection.

use super::{Connection, SdpSock};
use crate::transport::{CmLink, Endpoint};
use kernel::sync::Arc;

impl Connection {
    /// Takes the endpoint out of the connection.
    pub(crate) fn take_endpoint(&mut self) -> Option<Endpoint> {
        self.endpoint.take()
    }

    pub(crate) fn link(&self) -> Option<Arc<CmLink<SdpSock>>> {
        self.cm.link.clone()
    }

    /// Returns the MSeq of the last messages sent and received.
    pub(crate) fn sequence(&self) -> [u64; 2] {
        let protocol = self.protocol.as_ref();
        protocol.map_or([0; 2], |p| [p.mseq_sent().into(), p.mseq_received().into()])
    }

    /// Sets the private data to send in place of Hello or HelloAck.
    pub(crate) fn set_private_data(&mut self, bytes: [u8; 196]) {
        self.options.private_data = Some(bytes);
    }

    /// Returns true if the program has closed the socket.
    pub(crate) fn orphaned(&self) -> bool {
        self.closing.is_orphaned()
    }
}
