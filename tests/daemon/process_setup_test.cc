#include "daemon/process_setup.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/os/files.h"
#include "served.h"

using namespace moorage;
using namespace moorage::daemon;

TEST_CASE("the socket is open to its group, or only to root without that group") {
  if (geteuid() != 0) return;
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run/api.sock";
  const group* some = getgrnam("daemon");
  REQUIRE(some);
  struct stat status {};
  {
    const base::Fd listener = listen_for_clients(path, "daemon");
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0660);
    CHECK(status.st_gid == some->gr_gid);
    CHECK(status.st_uid == 0);
    CHECK(base::connect_unix(path, 1000));
  }
  const base::Fd listener = listen_for_clients(path, "no-such-group-here");
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(status.st_gid == 0);
}

TEST_CASE("the service manager is notified if it asks for it") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/notify";
  const base::Fd receiver(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(bind(receiver.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  tell_service_manager("READY=1");
  unsetenv("NOTIFY_SOCKET");
  tell_service_manager("STOPPING=1");
  char bytes[64];
  CHECK(recv(receiver.get(), bytes, sizeof(bytes), MSG_DONTWAIT) == 7);
  CHECK(std::string(bytes, 7) == "READY=1");
  CHECK(recv(receiver.get(), bytes, sizeof(bytes), MSG_DONTWAIT) < 0);
}
