//! A question, the way to its place, and how an answer ended.

use haul_job::{Carriage, Endpoint, Here, Job, Place, Selection, SshOptions};
use haul_wire::place::Question;

/// A question, and the way to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The place that is asked.
    pub place: Place,
    /// The question.
    pub question: Question,
    /// Settings of the connection.
    pub carriage: Carriage,
    /// Settings of the ssh program.
    pub ssh: SshOptions,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The answer is complete.
    Whole,
    /// The caller wanted no more.
    Enough,
}

impl Request {
    /// The job that reaches the place as a copy would.
    pub fn job(&self) -> Job {
        let nowhere = |place: Place| Endpoint { place, path: b".".to_vec() };
        Job {
            movers: Vec::new(),
            files_from: None,
            sources: vec![nowhere(self.place.clone())],
            target: nowhere(Here::Disk.into()),
            selection: Selection::default(),
            carriage: self.carriage.clone(),
            ssh: self.ssh.clone(),
        }
    }
}
