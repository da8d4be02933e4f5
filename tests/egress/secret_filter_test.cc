#include "egress/broker/secret_filter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "egress/broker/secret_forms.h"

using namespace moorage;
using egress::SecretFilter;

namespace {

const std::string kSecret = "sk-9f+Qx/7e&\"z~k'w=";

// What arrives of the text, in pieces of this size.
std::string arrives(SecretFilter& filter, std::string_view text, size_t piece) {
  std::string came;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    came += filter.pass(std::string(text.substr(0, piece)));
  return came + filter.rest();
}

}  // namespace

TEST_CASE("a secret is found in the forms in which hosts repeat what they got") {
  // Each as Python writes it, with the secret in other text.
  const std::string form = GENERATE(as<std::string>{},                    //
                                    "sk-9f+Qx/7e&\"z~k'w=",               // itself
                                    "sk-9f%2BQx%2F7e%26%22z~k%27w%3D",    // quote(safe='')
                                    "sk-9f%2BQx/7e%26%22z~k%27w%3D",      // quote()
                                    "sk-9f%2bQx%2f7e%26%22z~k%27w%3d",    //
                                    "sk-9f%2BQx%2F7e%26%22z~k'w%3D",      // encodeURIComponent()
                                    "sk-9f+Qx/7e&\\\"z~k'w=",             // json.dumps()
                                    "sk-9f+Qx\\/7e&\\\"z~k'w=",           // PHP
                                    "sk-9f+Qx/7e\\u0026\\\"z~k'w=",       // Go
                                    "sk-9f+Qx/7e&amp;&quot;z~k&#x27;w=",  // html.escape()
                                    "sk-9f+Qx/7e&amp;&quot;z~k&#39;w=",   // PHP
                                    "c2stOWYrUXgvN2UmInp+ayd3PQ==",       // b64encode()
                                    "c2stOWYrUXgvN2UmInp-ayd3PQ==",       // its form for URLs
                                    "YXVzOnNrLTlmK1F4LzdlJiJ6fmsndz0=",   // b64encode("aus:" + ...)
                                    "Om46c2stOWYrUXgvN2UmInp+ayd3PTpy",   // ":n:" + ... + ":r"
                                    "LXNrLTlmK1F4LzdlJiJ6fmsndz0t",       // "-" + ... + "-"
                                    "eHlzay05ZitReC83ZSYien5rJ3c9LQ==",   // "xy" + ... + "-"
                                    "736b2d39662b51782f376526227a7e6b27773d",
                                    "736B2D39662B51782F376526227A7E6B27773D",  //
                                    "SK-9F+QX/7E&\"Z~K'W=", "sk-9f+qx/7e&\"z~k'w=");
  const size_t piece = GENERATE(1, 2, 7, 1'000);
  const size_t before = GENERATE(0, 3, 20, 500);
  SecretFilter filter({kSecret});
  const std::string came =
      arrives(filter, std::string(before, 'x') + form + std::string(40, 'y'), piece);
  CHECK(filter.found());
  const size_t other = 6;  // at most, of what Base64 wrote before the secret
  CHECK(came.size() < before + other + SecretFilter::kLeastHeld);
  CHECK(SecretFilter({kSecret}).contains("x" + form + "y"));
}

TEST_CASE("text that is only like a secret arrives whole, however it is cut") {
  const std::string text = GENERATE(
      as<std::string>{}, "sk-9f+Qx/7e&\"z~k'w", "sk-9f+Qsk-9f+Qx/7e&sk-9f", "sk-sk-sk-sk-9f+Qx/",
      "736b2d39662b51782f3765262736b2d39662b51782f376526", std::string(300, 's'), "");
  const size_t piece = GENERATE(1, 2, 3, 5, 11, 1'000);
  SecretFilter filter({kSecret});
  CHECK(arrives(filter, text, piece) == text);
  CHECK_FALSE(filter.found());
}

TEST_CASE("random text arrives whole, and a secret that is put in is found") {
  srand(GENERATE(1, 2, 3, 4, 5, 6, 7, 8));
  for (int round = 0; round < 500; ++round) {
    // Of few letters, so that beginnings of the secret are frequent.
    const auto letters = [](size_t size) {
      std::string text;
      while (text.size() < size) text += "abs"[rand() % 3];
      return text;
    };
    const std::string secret = letters(8 + rand() % 5);
    const std::string text = letters(rand() % 60);
    SecretFilter filter({secret});
    const auto forms = egress::secret_forms(secret);
    const bool there = std::ranges::any_of(
        forms, [&text](const std::string& form) { return text.find(form) != text.npos; });
    const std::string came = arrives(filter, text, 1 + rand() % 9);
    CHECK(filter.found() == there);
    if (!there) CHECK(came == text);
    if (there) CHECK(came.find(secret) == came.npos);
  }
}

TEST_CASE("an event is not held because it ends like the beginning of a secret") {
  SecretFilter filter({"secret-of-the-api"});
  CHECK(filter.pass("data: yes") == "data: yes");
  CHECK(filter.pass("ec") == "ec");
  CHECK(filter.pass("r") == "");
  CHECK(filter.pass("..") == "r..");
}
