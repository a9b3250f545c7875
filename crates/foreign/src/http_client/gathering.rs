//! A socket whose reader may let data gather, so that the kernel acknowledges less often.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::http_client::reach::Gather;

pub(crate) struct Gathering {
    socket: TcpStream,
    gather: Gather,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Gathering {
    pub(crate) fn new(socket: TcpStream, gather: Gather) -> Gathering {
        Gathering { socket, gather, pause: None }
    }
}

impl AsyncRead for Gathering {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.pause.is_none() {
            self.pause = self.gather.pause().map(|pause| Box::pin(sleep(pause)));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
        }
        let read = Pin::new(&mut self.socket).poll_read(context, into);
        if read.is_ready() {
            self.pause = None;
        }
        read
    }
}

impl AsyncWrite for Gathering {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        blocks: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, blocks)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
