//! A question, the way to its place, and how an answer ended.

use haul_job::{Carriage, Endpoint, Here, Job, Place, Selection, SshOptions};
use haul_wire::place::Question;

/// A question, and the way to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The place whose trees are asked about.
    pub place: Place,
    /// The question.
    pub question: Question,
    /// The settings of the connection.
    pub carriage: Carriage,
    /// The settings of the system's ssh program.
    pub ssh: SshOptions,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The answer came to its end.
    Whole,
    /// The caller wanted no more.
    Enough,
}

impl Request {
    /// The job that reaches the place as a copy from it would. It names no files.
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
