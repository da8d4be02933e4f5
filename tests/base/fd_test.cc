#include "base/os/fd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;
using base::Fd;

namespace {

std::pair<Fd, Fd> make_socket_pair() {
  int ends[2];
  base::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "create a socket pair");
  return {Fd(ends[0]), Fd(ends[1])};
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }
bool is_close_on_exec(int fd) { return fcntl(fd, F_GETFD) & FD_CLOEXEC; }

}  // namespace

TEST_CASE("an Fd closes its descriptor once, also after moves") {
  base::Pipe pipe = base::make_pipe();
  const int number = pipe.read_end.get();
  {
    Fd taken = std::move(pipe.read_end);
    CHECK_FALSE(pipe.read_end);
    CHECK(taken.get() == number);
    taken = std::move(taken);
    CHECK(taken.get() == number);
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("all descriptors made here are close-on-exec") {
  base::Pipe pipe = base::make_pipe();
  auto [left, right] = make_socket_pair();
  Fd copy = left.duplicate();
  base::send_with_fds(left.get(), "x", std::vector<int>{pipe.read_end.get()});
  auto received = base::receive_with_fds(right.get(), 10);
  REQUIRE(received.fds.size() == 1);
  for (int fd : {pipe.read_end.get(), pipe.write_end.get(), left.get(), right.get(), copy.get(),
                 received.fds[0].get()}) {
    CHECK(is_close_on_exec(fd));
  }
}

TEST_CASE("write_all and read_up_to carry more than a pipe holds, blocking or not") {
  const bool blocking = GENERATE(true, false);
  base::Pipe pipe = base::make_pipe();
  if (!blocking) {
    fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
    fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  }
  const std::string sent(1 << 20, 'm');
  std::thread writer([&] {
    base::write_all(pipe.write_end.get(), sent);
    pipe.write_end.reset();
  });
  const std::string received = base::read_up_to(pipe.read_end.get(), 2 << 20);
  writer.join();
  CHECK(received == sent);
}

TEST_CASE("reading an open /proc file after its process ended throws not_found") {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const Fd stat = base::open_file("/proc/" + std::to_string(child) + "/stat", O_RDONLY);
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(test::code_thrown_by([&] { base::read_up_to(stat.get(), 100); }) == "not_found");
}

TEST_CASE("read_at reads from the offset to the end and leaves the position alone") {
  test::TemporaryDirectory directory;
  base::write_file(directory / "f", "0123456789");
  Fd fd = base::open_file(directory / "f", O_RDONLY);
  CHECK(base::read_at(fd.get(), 4, 3) == "3456");
  CHECK(base::read_at(fd.get(), 100, 8) == "89");
  CHECK(base::read_at(fd.get(), 100, 50).empty());
  CHECK(base::read_up_to(fd.get(), 2) == "01");
}

TEST_CASE("a message carries descriptors, and too many are refused and closed") {
  auto [left, right] = make_socket_pair();
  base::Pipe pipe = base::make_pipe();
  base::send_with_fds(left.get(), "hello", std::vector<int>{pipe.write_end.get()});
  auto received = base::receive_with_fds(right.get(), 100);
  CHECK(received.bytes == "hello");
  REQUIRE(received.fds.size() == 1);
  base::write_all(received.fds[0].get(), "through");
  CHECK(base::read_up_to(pipe.read_end.get(), 7) == "through");

  received.fds.clear();
  base::send_with_fds(left.get(), "many", std::vector<int>(5, pipe.write_end.get()));
  CHECK(test::code_thrown_by([&] { base::receive_with_fds(right.get(), 100, 2); }) ==
        "invalid_argument");
  // If a copy of the write end were still open, this read would not reach the end of the file.
  pipe.write_end.reset();
  REQUIRE(base::wait_readable(pipe.read_end.get(), 1000));
  CHECK(base::read_up_to(pipe.read_end.get(), 1).empty());

  left.reset();
  CHECK(base::receive_with_fds(right.get(), 100).bytes.empty());
}

TEST_CASE("a large message with descriptors arrives whole") {
  auto [left, right] = make_socket_pair();
  const std::string sent(3 << 20, 'q');
  std::thread sender(
      [&, socket = left.get()] { base::send_with_fds(socket, sent, std::vector<int>{socket}); });
  auto received = base::receive_with_fds(right.get(), sent.size());
  std::string all = received.bytes;
  all += base::read_up_to(right.get(), sent.size() - all.size());
  sender.join();
  CHECK(received.fds.size() == 1);
  CHECK(all == sent);
}

TEST_CASE("sending to a closed peer is an error, not a signal") {
  auto [left, right] = make_socket_pair();
  right.reset();
  CHECK(test::code_thrown_by([&] { base::send_with_fds(left.get(), "x", {}); }) == "io");
}

TEST_CASE("unix sockets work with short and long paths") {
  test::TemporaryDirectory directory;
  std::string parent = directory.path();
  if (GENERATE(false, true)) {
    for (int i = 0; i < 20; ++i) parent += "/" + std::string(50, 'd');
  }
  base::make_directories(parent);
  const std::string path = parent + "/mooraged.sock";
  { Fd stale = base::listen_unix(path, 0666); }
  Fd listener = base::listen_unix(path, 0640);
  struct stat status;
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);

  Fd client = base::connect_unix(path, 1000);
  Fd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(server);
  base::write_all(client.get(), "hi");
  CHECK(base::read_up_to(server.get(), 2) == "hi");
  CHECK(base::peer_credentials(server.get()).pid == getpid());
  CHECK(base::peer_credentials(server.get()).uid == getuid());
  std::vector<gid_t> mine(static_cast<size_t>(getgroups(0, nullptr)));
  mine.resize(static_cast<size_t>(getgroups(static_cast<int>(mine.size()), mine.data())));
  CHECK(base::peer_groups(server.get()) == mine);
}

TEST_CASE("connect_unix reports the problem within its time limit") {
  test::TemporaryDirectory directory;
  CHECK(test::code_thrown_by([&] { base::connect_unix(directory / "none", 100); }) == "not_found");
  { Fd dead = base::listen_unix(directory / "dead", 0600); }
  CHECK(test::code_thrown_by([&] { base::connect_unix(directory / "dead", 100); }) ==
        "unavailable");

  Fd busy = base::listen_unix(directory / "busy", 0600, 0);
  Fd first = base::connect_unix(directory / "busy", 1000);
  const int64_t start = base::system_clock().boot_ms();
  CHECK(test::code_thrown_by([&] { base::connect_unix(directory / "busy", 200); }) ==
        "deadline_exceeded");
  const int64_t passed = base::system_clock().boot_ms() - start;
  CHECK(passed >= 190);
  CHECK(passed < 5000);
}

TEST_CASE("wait_readable distinguishes data, silence and the end") {
  base::Pipe pipe = base::make_pipe();
  CHECK_FALSE(base::wait_readable(pipe.read_end.get(), 20));
  base::write_all(pipe.write_end.get(), "x");
  CHECK(base::wait_readable(pipe.read_end.get(), 0));
  base::read_up_to(pipe.read_end.get(), 1);
  pipe.write_end.reset();
  CHECK(base::wait_readable(pipe.read_end.get(), -1));
}
