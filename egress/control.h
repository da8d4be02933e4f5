// How the daemon speaks to a moorage-egress: a listening SOCK_SEQPACKET socket whose path only the
// host's root can reach. A message is a word and what belongs to it:
//
//   configure JSON   base::NetworkSettings; answered with "done CUT", the connections that it reset
//   line             with the line to the warden as its one descriptor; "done"
//   authority PEM    the certificate and key of an authority, for hosts whose TLS ends here; "done"
//   roots            with a file as its one descriptor: the authorities of real hosts; "done"
//   secret NAME      with a pipe as its one descriptor, out of which the secret comes; "done"
//   no-secret NAME WHY   "done"
//   push JSON        a base::PushAnswer; "done"
//   stream NUMBER    with a stream socket as its one descriptor: it carries a git request; "done"
//   no-stream NUMBER WHY "done"
//   seen CGROUP      answered with "sightings JSON", those of one command
//   follow SERIAL    "done"; then "seen JSON", a base::Sighting, for each one after SERIAL, and
//                    "use JSON", a base::NetworkUse: at once, and a second after each change, and
//                    "need NAME" for each credential whose secret a request waits for, and
//                    "push JSON", a base::PushQuestion, for each push that waits
//                    "stream NUMBER CREDENTIAL SERVICE PATH" for each stream
//   hello            answered with "hello OLDEST NEWEST RELEASE", its protocols
//
// Refusals are "error TEXT". A follower that reads slowly gets what the ledger still keeps.
#pragma once

#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "egress/gateway.h"

namespace moorage::egress {

class Control {
 public:
  Control(base::Loop& loop, Fd listener, Gateway& gateway);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  static constexpr size_t kMaxMessage = 1 << 20;
  static constexpr size_t kMaxClients = 64;

 private:
  struct Client;
  void accept_client();
  void on_message(Client& client);
  void answer(Client& client, std::string_view text, std::vector<Fd> fds);
  void list(Client& client, std::string_view cgroup);
  void follow(Client& client, std::string_view serial);
  void send_news(Client& client);
  void on_use_change();
  void on_need();
  void on_push();
  static void send(Client& client, const std::string& text);
  static bool fits(Client& client, const std::string& text);
  static void end(Client& client);
  void sweep();  // removes clients that are gone

  base::Loop& loop_;
  Fd listener_;
  Gateway& gateway_;
  std::list<Client> clients_;
  base::Timer sweep_timer_;
  base::Timer use_timer_;
  base::Watch watch_;
};

}  // namespace moorage::egress
