// Pushes at the egress: which commands pass, which are asked about, which are refused.
#include "egress/broker/push_gate.h"

#include <catch2/catch.hpp>
#include <random>

#include "base/os/process.h"
#include "egress/broker/http_exchange.h"

using namespace moorage;
using namespace moorage::egress;

namespace {

const std::string kZero(40, '0'), kOne(40, '1'), kTwo(40, '2');
const std::string kCapabilities("\0 report-status-v2 side-band-64k atomic", 39);

std::string line(const std::string& text) {
  char size[5];
  std::snprintf(size, sizeof size, "%04zx", text.size() + 4);
  return size + text;
}
std::string pushed(const std::vector<base::PushCommand>& commands,
                   const std::string& capabilities = kCapabilities) {
  std::string body;
  for (const base::PushCommand& command : commands) {
    body += line(command.old_id + " " + command.new_id + " " + command.ref +
                 (body.empty() ? capabilities : ""));
  }
  return body + "0000";
}

struct Gate {
  Gate() {
    exchange.from_client(
        "POST /shop.git/git-receive-pack HTTP/1.1\r\nHost: git.example.com\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    REQUIRE(exchange.state() == HttpExchange::State::judging);
  }
  void judge() {
    PushGate::judge(pushes, exchange,
                    {.repository = "https://git.example.com/shop.git",
                     .policy = policy,
                     .pass =
                         [this] {
                           ++passes;
                           exchange.pass({});
                         },
                     .go_on = [this] { ++later; }});
  }
  void send(const std::string& bytes) {
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    exchange.from_client(size + bytes + "\r\n");
  }
  void end() { exchange.from_client("0\r\n\r\n"); }
  bool answered(const std::string& text) const {
    return exchange.to_client.find(text) != std::string::npos;
  }

  base::PushPolicy policy;
  base::Loop loop;
  Pushes pushes{loop};
  HttpExchange exchange{"git.example.com", 443};
  int passes = 0;
  int later = 0;
};

const std::vector<base::PushCommand> kUpdate = {{"refs/heads/main", kOne, kTwo}};
const std::vector<base::PushCommand> kNew = {{"refs/heads/new", kZero, kTwo}};

}  // namespace

TEST_CASE("a push passes when the daemon has no reason against it") {
  Gate gate;
  const size_t piece = GENERATE(1, 5, 1000);
  gate.judge();
  const std::string body = pushed(kUpdate) + "PACKED";
  for (size_t at = 0; at < body.size(); at += piece) gate.send(body.substr(at, piece));
  CHECK(gate.passes == 0);
  CHECK(gate.exchange.to_server.empty());
  const auto asked = gate.pushes.waiting(0);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].repository == "https://git.example.com/shop.git");
  CHECK(asked[0].commands == kUpdate);
  CHECK(gate.pushes.waiting(asked[0].id).empty());
  gate.pushes.answer({asked[0].id + 1, {""}});
  CHECK(gate.passes == 0);
  gate.pushes.answer({asked[0].id, {""}});
  CHECK(gate.passes == 1);
  CHECK(gate.later == 1);
  gate.pushes.answer({asked[0].id, {""}});
  CHECK(gate.passes == 1);
  gate.end();
  CHECK(gate.exchange.to_server.ends_with("PACKED\r\n0\r\n\r\n"));
}

TEST_CASE("a refused push is answered with the reason for each ref") {
  Gate gate;
  gate.judge();
  gate.send(pushed({kUpdate[0], kNew[0]}) + "PACKED");
  const auto asked = gate.pushes.waiting(0);
  REQUIRE(asked.size() == 1);
  gate.pushes.answer({asked[0].id, {"waits for approval ap_3", ""}});
  CHECK(gate.exchange.to_client.empty());  // git reads no answer before it has sent all
  gate.send(std::string(300'000, 'x'));
  gate.end();
  CHECK(gate.answered("application/x-git-receive-pack-result"));
  CHECK(gate.answered(line("ng refs/heads/main waits for approval ap_3\n")));
  CHECK(gate.answered(line("ng refs/heads/new another ref of this push was refused\n")));
  CHECK(gate.passes == 0);
  CHECK(gate.exchange.to_server.empty());
}

TEST_CASE("other refs, deletions and mirrors are refused without asking") {
  Gate gate;
  gate.policy.mode = GENERATE(base::PushMode::ask, base::PushMode::allow);
  gate.judge();
  std::string why;
  SECTION("another ref") {
    gate.send(pushed({{"refs/tags/v1", kZero, kOne}}));
    why = "only these refs may be pushed: refs/heads/*";
  }
  SECTION("a deletion") {
    gate.send(pushed({{"refs/heads/main", kOne, kZero}}));
    why = "refs may not be deleted";
  }
  SECTION("nothing") {
    gate.send(pushed({{"refs/heads/main", kOne, kOne}}));
    why = "it changes nothing";
  }
  SECTION("a mirror") {
    gate.send(pushed({kUpdate[0], {"refs/remotes/origin/main", kZero, kTwo}}));
    why = "another ref of this push was refused";
  }
  SECTION("too many") {
    std::vector<base::PushCommand> many;
    for (int i = 0; i < 33; ++i) many.push_back({"refs/heads/b" + std::to_string(i), kZero, kTwo});
    gate.send(pushed(many));
    why = "at most 32 refs in one push";
  }
  gate.end();
  CHECK(gate.answered(why));
  CHECK(gate.passes == 0);
  CHECK(gate.pushes.waiting(0).empty());
  CHECK(gate.exchange.to_server.empty());
}

TEST_CASE("modes: refuse, and allow, which asks only about rewrites") {
  Gate gate;
  gate.policy.mode = GENERATE(base::PushMode::refuse, base::PushMode::allow);
  const bool allows = gate.policy.mode == base::PushMode::allow;
  gate.judge();
  SECTION("a new ref") {
    gate.send(pushed(kNew));
    gate.end();
    CHECK(gate.passes == (allows ? 1 : 0));
    CHECK(gate.answered("this workspace may not push") != allows);
    CHECK(gate.pushes.waiting(0).empty());
  }
  SECTION("an update") {
    gate.send(pushed(kUpdate));
    CHECK(gate.passes == 0);
    CHECK(gate.pushes.waiting(0).size() == (allows ? 1 : 0));
  }
}

TEST_CASE("a push that cannot be judged is answered 403 and goes nowhere") {
  Gate gate;
  gate.judge();
  SECTION("no commands") { gate.send("PACK"); }
  SECTION("cut commands") {
    gate.send(pushed(kUpdate).substr(0, 60));
    gate.end();
  }
  SECTION("commands without end") {
    const std::string command = line(kOne + " " + kTwo + " refs/heads/" + std::string(900, 'x'));
    gate.send(pushed(kUpdate).substr(0, pushed(kUpdate).size() - 4));
    for (int i = 0; i < 500 && gate.exchange.takes_from_client(); ++i) {
      gate.send(
          line(kOne + " " + kTwo + " refs/heads/" + std::string(900, 'x') + std::to_string(i)));
    }
  }
  SECTION("something behind a probe") {
    gate.send("0000");
    CHECK(gate.passes == 0);
    gate.send(pushed(kUpdate));
  }
  SECTION("a program that would not read the reasons") {
    gate.send(pushed({{"refs/heads/main", kOne, kZero}}, std::string("\0atomic", 7)));
  }
  CHECK(gate.answered("HTTP/1.1 403 "));
  CHECK(gate.passes == 0);
  CHECK(gate.exchange.to_server.empty());
}

TEST_CASE("a probe passes; a ninth push that waits is refused") {
  Gate probe;
  probe.judge();
  probe.send("0000");
  probe.end();
  CHECK(probe.passes == 1);
  Gate gate;
  std::vector<Pushes::Ticket> tickets;
  for (size_t i = 0; i < Pushes::kMaxWaiting; ++i)
    tickets.push_back(gate.pushes.ask("https://x/y", kUpdate, [](const auto&) {}));
  gate.judge();
  gate.send(pushed(kUpdate));
  gate.end();
  CHECK(gate.answered("too many pushes wait"));
  tickets.clear();
  CHECK(gate.pushes.waiting(0).empty());
}

TEST_CASE("of 1,000 odd spellings, only refs that git reads the same way pass") {
  const std::string prefix = "refs/heads/agent/";
  base::PushPolicy policy{base::PushMode::allow, {prefix + "*"}};
  std::mt19937 random(7);
  const auto pick = [&random](size_t below) { return random() % below; };
  const std::vector<std::string> pieces = {
      "/",   "//", ".",    "..", "/../", "/./", "%2f",   "%2e", "@{", "@",  "~1",   "^",
      "^{}", ":",  "?",    "*",  "[",    "\\",  ".lock", " ",   "\t", "\n", "\r",   "A",
      "a",   "\0", "\x7f", "é",  "İ",    "ſ",   "refs/", "x/y", "-",  "+",  "HEAD", "\xff"};
  size_t passed = 0, refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string ref = pick(4) == 0 ? "refs/heads/main" : prefix + "task";
    if (i == 0) ref = prefix + "task";
    for (size_t change = 0; i > 0 && change < 1 + pick(3); ++change) {
      const size_t at = pick(ref.size() + 1);
      switch (pick(5)) {
        case 0:
        case 1:
          ref.insert(at, pieces[pick(pieces.size())]);
          break;
        case 2:
          if (at < ref.size()) ref.erase(at, 1 + pick(6));
          break;
        case 3:
          if (at < ref.size()) ref[at] ^= 0x20;
          break;
        default:
          ref = pick(2) == 0 ? ref.substr(ref.find('/') + 1) : ref + pieces[pick(pieces.size())];
      }
    }
    PushHead head;
    const bool read = head.read(pushed({{ref, kZero, kTwo}})) == PushHead::State::complete &&
                      refused_by_policy(policy, head.commands())[0].empty();
    ++(read ? passed : refused);
    if (!read) continue;
    CAPTURE(ref);
    CHECK(head.commands()[0].ref == ref.substr(0, ref.find_last_not_of('\n') + 1));
    CHECK(head.commands()[0].ref.starts_with(prefix));
    const auto git =
        base::run_process({"git", "check-ref-format", "--normalize", head.commands()[0].ref}, {});
    CHECK(git.ok());
    CHECK(git.output == head.commands()[0].ref + "\n");
  }
  CHECK(passed > 25);
  CHECK(refused > 500);
}
