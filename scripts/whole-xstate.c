// Lets the kernel of the package user-mode-linux (6.1) run programs on processors with AMX.
//
// That kernel keeps the floating-point state of a program in 2,696 bytes. With AMX the state has 11 KB, and ptrace(2) refuses to set a part
// of it (EFAULT), so that the first program of the guest dies. Preloaded into that kernel, this puts the part that it knows into the whole state.
// Kernels from 6.13 on ask the processor for the size and need no help.
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
// The kernel is one thread when it traces. Intel SDM 1, 13.2: the largest state so far has 11 KB.
static char whole[64 << 10];

long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
        struct iovec *part = data;
        struct iovec all = {whole, sizeof whole};
        if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > part->iov_len) {
            memcpy(whole, part->iov_base, part->iov_len);
            return syscall(SYS_ptrace, request, pid, address, &all);
        }
    }
    // The system call stores what it read; the function of the C library returns it.
    long peeked;
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long failed = syscall(SYS_ptrace, request, pid, address, &peeked);
        return failed < 0 ? failed : peeked;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
