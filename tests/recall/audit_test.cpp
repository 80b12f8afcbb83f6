#include "recall/audit.h"

#include <gtest/gtest.h>

namespace ctxzip::testing {
namespace {

// Known values: R's binom.test(found, n)$conf.int.
TEST(ClopperPearsonTest, KnownLimits) {
  struct Case {
    int64_t found, n;
    double lower, upper;
  };
  for (const Case& each :
       {Case{0, 10, 0, 0.3084971}, Case{10, 10, 0.6915029, 1}, Case{5, 10, 0.1870860, 0.8129140},
        Case{95, 100, 0.8871651, 0.9835681}, Case{1, 3, 0.008403759, 0.9057007}}) {
    const ProportionLimits limits = clopper_pearson(each.found, each.n);
    EXPECT_NEAR(limits.lower, each.lower, 1e-6) << each.found << " of " << each.n;
    EXPECT_NEAR(limits.upper, each.upper, 1e-6) << each.found << " of " << each.n;
  }
  EXPECT_EQ(clopper_pearson(0, 0).lower, 0);
  EXPECT_EQ(clopper_pearson(0, 0).upper, 1);
}

TEST(ClopperPearsonTest, AuditsToPass) {
  for (const double target : {0.5, 0.9, 0.99}) {
    const int64_t n = audits_to_pass(target);
    EXPECT_GE(clopper_pearson(n, n).lower, target);
    EXPECT_LT(clopper_pearson(n - 1, n - 1).lower, target);
  }
}

}  // namespace
}  // namespace ctxzip::testing
