//! Connections to a server as lanes, which others open and close.

use haul_channel::lane_addresses::LaneAddresses;
use haul_net::OutboundConnection;
use haul_net::policy::Dscp;
use haul_wire::control::Notice;
use haul_wire::summary::PathService;

use super::Tuning;
use crate::lane::Lane;

impl Tuning {
    pub(crate) fn of_outbound(self) -> Self {
        Self { dials_again: false, ..self }
    }

    /// Decides on the class of the path to a server, which may be over before a connection is sampled.
    pub(crate) fn outbound_begins(&mut self, path: u16, addresses: LaneAddresses) {
        if !addresses.local.is_loopback() {
            self.classes.path_begins(path, Some(addresses));
        }
    }

    /// What is untold of the class when the copy ends.
    pub fn untold(&mut self) -> Vec<Notice> {
        self.classes.told()
    }

    pub(crate) fn outbound_service(&self, path: u16) -> PathService {
        self.classes.summary(path, self.lanes.iter())
    }

    /// Samples a connection, which goes on with a lane whose last one has ended.
    pub(crate) fn outbound_up(&mut self, number: u16, connection: OutboundConnection) {
        match self.lanes.iter_mut().find(|lane| lane.number == number) {
            Some(lane) => lane.go_on(connection),
            None => {
                let addresses = LaneAddresses::of_probe(&connection.probe);
                self.sample_lane(Lane::of_outbound(number, connection), addresses);
            }
        }
    }

    pub(crate) fn outbound_down(&mut self, number: u16) {
        self.lanes.iter_mut().filter(|lane| lane.number == number).for_each(Lane::end);
    }

    pub(crate) fn mark_of_next(&self, path: u16) -> Option<Option<Dscp>> {
        self.classes.mark_of_next(path)
    }
}
