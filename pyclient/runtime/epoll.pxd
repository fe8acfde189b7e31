# Calls of the system on the epoll that a lent loop sleeps on; none of it holds a lock of the interpreter or runs Python.

cdef extern from *:
    """
    #define PYCLIENT_MOST_READY 4
    #ifdef __linux__
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/timerfd.h>

    /* Let *epoll* report bytes on *fd*, or not; 0 if it does not know *fd*. */
    static int pyclient_watch(int epoll, int fd, int on)
    {
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        event.events = on ? EPOLLIN : 0;
        event.data.fd = fd;
        return epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0;
    }

    /* How many descriptors are readable, put into *fds*; 0 after *timeout_ms*, on a signal, and if one has anything else to report. */
    static int pyclient_sleep_on(int epoll, int timeout_ms, int *fds)
    {
        struct epoll_event events[PYCLIENT_MOST_READY];
        int at, count = epoll_wait(epoll, events, PYCLIENT_MOST_READY, timeout_ms);
        for (at = 0; at < count; at++) {
            if (events[at].events != EPOLLIN)
                return 0;
            fds[at] = events[at].data.fd;
        }
        return count < 0 ? 0 : count;
    }

    /* A timer that becomes readable at its time; -1 if there can be none. */
    static int pyclient_new_timer(void)
    {
        return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    }

    /* Set the time, in seconds of the monotonic clock, and make the timer unreadable until then; never readable when it is infinite. */
    static int pyclient_set_timer(int timer, double at)
    {
        struct itimerspec set;
        memset(&set, 0, sizeof set);
        if (at < 1e15) {
            set.it_value.tv_sec = (time_t)at;
            set.it_value.tv_nsec = (long)((at - (double)set.it_value.tv_sec) * 1e9);
            if (!set.it_value.tv_sec && !set.it_value.tv_nsec)
                set.it_value.tv_nsec = 1; /* zero would unset it */
        }
        return timerfd_settime(timer, TFD_TIMER_ABSTIME, &set, NULL) == 0;
    }
    #else /* no loop is lent */
    static int pyclient_watch(int epoll, int fd, int on) { return 0; }
    static int pyclient_sleep_on(int epoll, int timeout_ms, int *fds) { return 0; }
    static int pyclient_new_timer(void) { return -1; }
    static int pyclient_set_timer(int timer, double at) { return 0; }
    #endif
    """
    enum: MOST_READY "PYCLIENT_MOST_READY"
    bint watch "pyclient_watch"(int epoll, int fd, bint on) noexcept nogil
    int sleep_on "pyclient_sleep_on"(int epoll, int timeout_ms, int* fds) noexcept nogil
    int timer "pyclient_new_timer"() noexcept nogil
    bint set_time "pyclient_set_timer"(int timer, double at) noexcept nogil
