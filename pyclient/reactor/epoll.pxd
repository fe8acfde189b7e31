# An epoll, with an eventfd that wakes who sleeps in it and a timerfd for the next deadline. None of it runs Python.

cdef extern from *:
    """
    #define PYCLIENT_MOST_EVENTS 32
    #define PYCLIENT_READABLE 1
    #define PYCLIENT_WRITABLE 2
    #define PYCLIENT_ENDS 4
    typedef struct { unsigned long long token; int events; } pyclient_event;
    #ifdef __linux__
    #include <errno.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/timerfd.h>
    #include <unistd.h>

    static int pyclient_epoll(void) { return epoll_create1(EPOLL_CLOEXEC); }
    static int pyclient_eventfd(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }
    static int pyclient_timer(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); }

    /* Report each change of *fd* once, to one sleeper: the one that came last. 0, or the error's number. */
    static int pyclient_watch(int epoll, int fd, unsigned long long token, int writes)
    {
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        event.events = EPOLLIN | EPOLLRDHUP | EPOLLET | (writes ? EPOLLOUT : 0);
        event.data.u64 = token;
        return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? errno : 0;
    }

    static void pyclient_unwatch(int epoll, int fd)
    {
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &event);
    }

    /* How many events there are, after at most *timeout_ms* (-1: no limit); minus the error's number (EINTR: a signal). */
    static int pyclient_sleep(int epoll, int timeout_ms, pyclient_event *events)
    {
        struct epoll_event found[PYCLIENT_MOST_EVENTS];
        int at, count = epoll_wait(epoll, found, PYCLIENT_MOST_EVENTS, timeout_ms);
        if (count < 0)
            return -errno;
        for (at = 0; at < count; at++) {
            unsigned int seen = found[at].events;
            events[at].token = found[at].data.u64;
            events[at].events = (seen & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? PYCLIENT_READABLE : 0)
                | (seen & (EPOLLOUT | EPOLLHUP | EPOLLERR) ? PYCLIENT_WRITABLE : 0)
                | (seen & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? PYCLIENT_ENDS : 0);
        }
        return count;
    }

    static void pyclient_notify(int eventfd)
    {
        unsigned long long one = 1;
        ssize_t written = write(eventfd, &one, sizeof one);
        (void)written; /* a counter that is full wakes as well */
    }

    /* Let *timer* be due at a time of the monotonic clock, in seconds; never if that is infinite. */
    static void pyclient_set_timer(int timer, double at)
    {
        struct itimerspec set;
        memset(&set, 0, sizeof set);
        if (at < 1e-6)
            at = 1e-6; /* zero would unset it, and a time before zero is refused */
        if (at < 1e15) {
            set.it_value.tv_sec = (time_t)at;
            set.it_value.tv_nsec = (long)((at - (double)set.it_value.tv_sec) * 1e9);
        }
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &set, NULL);
    }

    static void pyclient_close(int fd) { if (fd >= 0) close(fd); }
    #else
    static int pyclient_epoll(void) { return -1; }
    static int pyclient_eventfd(void) { return -1; }
    static int pyclient_timer(void) { return -1; }
    static int pyclient_watch(int epoll, int fd, unsigned long long token, int writes) { return 1; }
    static void pyclient_unwatch(int epoll, int fd) { }
    static int pyclient_sleep(int epoll, int timeout_ms, pyclient_event *events) { return -1; }
    static void pyclient_notify(int eventfd) { }
    static void pyclient_set_timer(int timer, double at) { }
    static void pyclient_close(int fd) { }
    #endif
    """
    ctypedef struct Event "pyclient_event":
        unsigned long long token
        int events

    enum: MOST_EVENTS "PYCLIENT_MOST_EVENTS"
    int new_epoll "pyclient_epoll"() noexcept nogil
    int new_eventfd "pyclient_eventfd"() noexcept nogil
    int new_timer "pyclient_timer"() noexcept nogil
    int watch "pyclient_watch"(int epoll, int fd, unsigned long long token, bint writes) noexcept nogil
    void unwatch "pyclient_unwatch"(int epoll, int fd) noexcept nogil
    int sleep_in "pyclient_sleep"(int epoll, int timeout_ms, Event* events) noexcept nogil
    void notify "pyclient_notify"(int eventfd) noexcept nogil
    void set_timer "pyclient_set_timer"(int timer, double at) noexcept nogil
    void close_descriptor "pyclient_close"(int fd) noexcept nogil
